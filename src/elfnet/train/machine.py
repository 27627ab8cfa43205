"""The machine of a run: device, precision, memory layout, compilation, malloc; and the content of run.json.

The choices are made once, when a run starts, and stored in run.json. A resumed run uses the stored choices.
"""

import ctypes
import os
import platform
import shutil
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

import torch
from lightning_fabric import Fabric

from elfnet.cpu_features import amx_is_unusable
from elfnet.data.loading.normalise import Normalisation
from elfnet.data.splits import Splits
from elfnet.errors import RequestError
from elfnet.models.flops import NetworkCost
from elfnet.recipe.schema import Recipe, TrainRecipe
from elfnet.recipe.stages import total_epochs
from elfnet.run.info import DataInfo, Hardware, Machine, MultiplyAdds, RunInfo, Seeds
from elfnet.train.distributed import DistributedContext
from elfnet.version import __version__

# Multiply-adds (forward, all epochs) from which compiling pays. Compiling ResNet-32 takes half a minute to a minute of
# two CPU cores and then saves a fifth to a quarter of a step; a GPU does some hundred times the work in that time.
COMPILE_PAYS_FROM = {"cpu": 1e13, "cuda": 1e15}


def choose_device(device: str) -> str:
    """Resolve the device `auto` to the accelerator that torch finds, else the CPU.

    Raises:
        RequestError: the device is unknown or not available.
    """
    if device != "auto":
        available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
        if device not in available:
            raise RequestError(f"train.device={device} is unknown; choose from: auto, {', '.join(available)}")
        if not available[device]:
            raise RequestError(f"train.device={device} is not available on this machine; use train.device=auto")
        return device
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def bfloat16_is_native(device: str) -> bool:
    """Whether the device computes bfloat16 in hardware. Emulated, it is an order of magnitude slower than float32.

    On a processor that announces AMX without describing its tiles only AVX-512 is left, with which bfloat16 is slower
    than float32 (0.8 of its images per second for ResNet-32).
    """
    if device == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device == "cpu":
        announced = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
        return bool(announced) and not amx_is_unusable()
    return False


def device_and_precision(train: TrainRecipe, recorded: Machine | None) -> tuple[str, str]:
    """The device and precision of a run, before any data is read.

    Args:
        recorded: section `machine` of run.json of a run to resume; None: a new run follows the recipe.
    """
    if recorded is not None:
        device, precision = recorded.device, recorded.precision
    else:
        device = choose_device(train.device)
        precision = _choose_precision(train.precision, device)
    if train.sync_batch_norm and device != "cuda":
        raise RequestError(f"train.sync_batch_norm=true needs GPUs, and this run is on {device}; set it to false")
    return device, precision


def fabric_precision(precision: str) -> Literal["bf16-mixed", "32-true"]:
    """The name of a precision in Lightning Fabric."""
    return "bf16-mixed" if precision == "bfloat16" else "32-true"


def _choose_precision(precision: str, device: str) -> str:
    """Resolve the precision `auto` to bfloat16 where the device has it in hardware, else float32."""
    if precision != "auto":
        return precision
    return "bfloat16" if bfloat16_is_native(device) else "float32"


def _can_compile(device: str) -> bool:
    """Whether torch.compile works: Inductor needs a C++ compiler on the CPU and triton on a GPU."""
    if device == "cpu":
        return shutil.which(os.environ.get("CXX", "g++")) is not None or shutil.which("clang++") is not None
    if device == "cuda":
        from torch.utils._triton import has_triton

        return bool(has_triton())
    return False


def choose_machine(
    *,
    device: str,
    precision: str,
    compile: str,
    channels_last: str,
    threads: int,
    work: float,
    batch_shrinks: bool = False,
) -> Machine:
    """Resolve every `auto` of the machine settings.

    Args:
        work: multiply-adds of the whole run, forward passes only.
        batch_shrinks: whether examples are dropped after their exit. `auto` does not compile then: graphs for any batch
            size are slower than no graphs (1.15 times the time per step on a CPU).
    """
    device = choose_device(device)
    pays = not batch_shrinks and _can_compile(device) and work >= COMPILE_PAYS_FROM.get(device, float("inf"))
    return Machine(
        device=device,
        precision=_choose_precision(precision, device),
        compile=pays if compile == "auto" else compile == "on",
        channels_last=device != "mps" if channels_last == "auto" else channels_last == "on",
        threads=threads or torch.get_num_threads(),
    )


# Parameters of mallopt, from glibc's malloc.h. Blocks up to 32 MiB (the maximum of mallopt) come from the heap, and the
# heap is not shrunk.
TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD = -1, -2, -3
MALLOC_SETTINGS = {MMAP_THRESHOLD: 32 * 2**20, TRIM_THRESHOLD: 2**31 - 1, TOP_PAD: 64 * 2**20}


def tune_malloc() -> bool:
    """Make malloc keep freed memory for reuse, in the whole process.

    Training allocates blocks of the same sizes in every step; returning them to the system costs page faults.

    Returns:
        Whether it was done: only with glibc, and not if the user has set malloc options.
    """
    if platform.libc_ver()[0] != "glibc" or any(name.startswith("MALLOC_") for name in os.environ):
        return False
    if "malloc" in os.environ.get("GLIBC_TUNABLES", ""):
        return False
    libc = ctypes.CDLL(None)
    return all(libc.mallopt(setting, value) == 1 for setting, value in MALLOC_SETTINGS.items())


RECORDED_PACKAGES = ("torch", "numpy", "lightning-fabric", "scikit-learn", "safetensors", "pydantic")


def set_up_machine(recipe: Recipe, info: RunInfo, processes: DistributedContext) -> None:
    """Set threads and memory allocation of this process as run.json says."""
    machine = info.machine
    processes.fail_together(lambda: require_same_precision(machine, processes.fabric))
    # The threads of a node are divided among the processes that it has now.
    torch.set_num_threads(max(1, machine.threads * info.devices // processes.on_this_node))
    # With after_exit=drop, blocks have many different sizes, and a heap that never shrinks would grow without bound.
    if machine.device == "cpu" and recipe.exits.after_exit != "drop":
        tune_malloc()


def require_same_precision(machine: Machine, fabric: Fabric) -> None:
    """Refuse a node on which `train.precision=auto` selects another precision than on rank 0."""
    here = fabric.strategy.precision.precision
    if here != fabric_precision(machine.precision):
        raise RequestError(
            f"rank 0 computes in {machine.precision}, and rank {fabric.global_rank} would compute in {here}; "
            "set train.precision=float32"
        )


def package_versions() -> dict[str, str]:
    """Versions of elfnet, Python and the packages that decide results, by name."""
    versions = {"elfnet": __version__, "python": platform.python_version()}
    for package in RECORDED_PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions


def hardware() -> Hardware:
    """This machine."""
    return Hardware(processor=_processor(), cores=os.cpu_count(), system=platform.system())


def _processor() -> str:
    """The name of the processor, on Linux from /proc/cpuinfo."""
    information = Path("/proc/cpuinfo")
    if information.is_file():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def run_info(recipe: Recipe, splits: Splits, normalisation: Normalisation, cost: NetworkCost) -> RunInfo:
    """The content of run.json of a new run, without the sections about processes and the origin of the weights.

    Args:
        cost: of the network that the run ends with.
    """
    images = len(splits.train)
    machine = choose_machine(
        device=recipe.train.device,
        precision=recipe.train.precision,
        compile=recipe.train.compile,
        channels_last=recipe.train.channels_last,
        threads=recipe.train.threads,
        work=float(images * total_epochs(recipe) * cost.to_exit[-1]),
        batch_shrinks=recipe.exits.after_exit == "drop",
    )
    program, *arguments = sys.argv
    return RunInfo(
        versions=package_versions(),
        hardware=hardware(),
        # Without the directory of the program.
        command=" ".join([Path(program).name, *arguments]),
        machine=machine,
        seeds=Seeds(
            subset=recipe.data.subset_seed, class_order=recipe.data.class_order_seed, training=recipe.train.seed
        ),
        data=DataInfo(
            fingerprint=splits.fingerprint,
            class_names=tuple(splits.class_names),
            class_counts=tuple(splits.class_counts_C.tolist()),
            train=images,
            calibration=len(splits.calibration),
            test=len(splits.test),
            image_shape=splits.train.example_shape,
            mean=normalisation.mean_K,
            std=normalisation.std_K,
        ),
        multiply_adds=MultiplyAdds(plain=cost.plain, stages=cost.stages, heads=cost.heads),
    )
