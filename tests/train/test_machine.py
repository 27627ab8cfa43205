"""What `auto` chooses, with the machine's abilities made up."""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.utils._triton

from elfnet.errors import RequestError
from elfnet.run.info import Machine
from elfnet.train import machine
from elfnet.train.machine import bfloat16_is_native, choose_device, choose_machine

AUTO: dict[str, Any] = {
    "device": "auto",
    "precision": "auto",
    "compile": "auto",
    "channels_last": "auto",
    "threads": 0,
    "work": 1e20,
}
Pretend = Callable[..., None]


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> Pretend:
    """Make this machine look like another."""

    def apply(
        *,
        cuda: bool = False,
        mps: bool = False,
        avx_bf16: bool = False,
        amx: bool = False,
        amx_without_tiles: bool = False,
        compilers: tuple[str, ...] = (),
    ) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
        monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: avx_bf16)
        monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
        monkeypatch.setattr(machine, "amx_is_unusable", lambda: amx_without_tiles)
        monkeypatch.setattr(torch.utils._triton, "has_triton", lambda: "triton" in compilers)
        monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}" if name in compilers else None)
        monkeypatch.delenv("CXX", raising=False)

    return apply


def _choose(**changes: Any) -> Machine:
    return choose_machine(**(AUTO | changes))


@pytest.mark.parametrize(
    ("cuda", "mps", "device"),
    [(True, True, "cuda"), (True, False, "cuda"), (False, True, "mps"), (False, False, "cpu")],
)
def test_auto_takes_the_accelerator_that_is_there(pretend: Pretend, cuda: bool, mps: bool, device: str) -> None:
    pretend(cuda=cuda, mps=mps)
    assert choose_device("auto") == device
    assert choose_device("cpu") == "cpu"


@pytest.mark.parametrize(
    ("avx_bf16", "amx", "precision"),
    [(False, False, "float32"), (True, False, "bfloat16"), (False, True, "bfloat16")],
)
def test_bfloat16_only_where_the_processor_computes_it(
    pretend: Pretend, avx_bf16: bool, amx: bool, precision: str
) -> None:
    pretend(avx_bf16=avx_bf16, amx=amx)
    assert _choose().precision == precision
    assert _choose(precision="bfloat16").precision == "bfloat16"
    assert _choose(precision="float32").precision == "float32"


def test_float32_where_amx_has_no_tiles(pretend: Pretend) -> None:
    pretend(avx_bf16=True, amx=True, amx_without_tiles=True)
    assert _choose().precision == "float32"
    assert _choose(precision="bfloat16").precision == "bfloat16"


def test_emulated_bfloat16_does_not_count(pretend: Pretend) -> None:
    pretend(cuda=True, mps=True, avx_bf16=True)
    assert not bfloat16_is_native("cuda")
    assert not bfloat16_is_native("mps")
    assert bfloat16_is_native("cpu")


@pytest.mark.parametrize(
    ("compilers", "work", "compiles"),
    [
        (("g++",), 1e13, True),
        (("clang++",), 1e13, True),
        (("g++",), 0.9e13, False),
        ((), 1e20, False),
        (("triton",), 1e20, False),
    ],
)
def test_compiling_on_a_cpu_wants_enough_work_and_a_compiler(
    pretend: Pretend, compilers: tuple[str, ...], work: float, compiles: bool
) -> None:
    pretend(compilers=compilers)
    assert _choose(work=work).compile is compiles


@pytest.mark.parametrize(
    ("compilers", "work", "compiles"), [(("triton",), 1e15, True), (("triton",), 1e14, False), (("g++",), 1e20, False)]
)
def test_compiling_on_a_gpu_wants_more_work_and_triton(
    pretend: Pretend, compilers: tuple[str, ...], work: float, compiles: bool
) -> None:
    pretend(cuda=True, compilers=compilers)
    assert _choose(work=work).compile is compiles


def test_the_compiler_named_in_the_environment_counts(pretend: Pretend, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(compilers=("icpx",))
    assert not _choose().compile
    monkeypatch.setenv("CXX", "icpx")
    assert _choose().compile


def test_mps_neither_compiles_nor_changes_the_layout(pretend: Pretend) -> None:
    pretend(mps=True, compilers=("g++", "triton"))
    machine = _choose()
    assert (machine.compile, machine.channels_last) == (False, False)


def test_explicit_settings_win(pretend: Pretend) -> None:
    pretend(compilers=("g++",))
    off = _choose(compile="off", channels_last="off", threads=3)
    assert (off.compile, off.channels_last, off.threads) == (False, False, 3)
    pretend()
    on = _choose(compile="on", channels_last="on", work=0.0)
    assert (on.compile, on.channels_last, on.threads) == (True, True, torch.get_num_threads())
    assert _choose().channels_last


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("tpu", "train.device=tpu is unknown; choose from: auto, cpu, cuda, mps"),
        ("cuda", "train.device=cuda is not available on this machine; use train.device=auto"),
        ("mps", "train.device=mps is not available on this machine; use train.device=auto"),
    ],
)
def test_a_device_that_is_not_there_is_one_line(pretend: Pretend, device: str, message: str) -> None:
    pretend()
    with pytest.raises(RequestError) as caught:
        choose_device(device)
    assert str(caught.value) == message


def test_choices_are_plain_data() -> None:
    machine = Machine(device="cpu", precision="float32", compile=False, channels_last=True, threads=2)
    assert Machine(**machine.to_json()) == machine


def test_auto_does_not_compile_where_the_batch_shrinks(pretend: Pretend) -> None:
    pretend(compilers=("g++",))
    assert _choose(work=float("inf")).compile
    assert not _choose(work=float("inf"), batch_shrinks=True).compile
    assert _choose(work=float("inf"), batch_shrinks=True, compile="on").compile


FAULTS = """
import resource, sys
import torch
from elfnet.train.machine import tune_malloc

kept = tune_malloc()
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
torch.ones(2**21)
before = faults()
for _ in range(200):
    torch.ones(2**21)
print(kept, faults() - before)
"""


def kept_and_faults(**environment: str) -> tuple[str, int]:
    """Of a process that allocates 8 MiB two hundred times."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    done = subprocess.run(
        [sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True, env={**clean, **environment}
    )
    kept, faults = done.stdout.split()
    return kept, int(faults)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has these settings")
@pytest.mark.slow
def test_the_same_memory_is_used_again_unless_the_user_has_set_it() -> None:
    pages = 2**23 // os.sysconf("SC_PAGE_SIZE")
    kept, few = kept_and_faults()
    left, many = kept_and_faults(MALLOC_MMAP_THRESHOLD_="1000000")
    assert (kept, left) == ("True", "False")
    assert many > 190 * pages  # every time anew
    assert few < 40 * pages  # the heap may grow a few times more
