"""How many processes a run has, and what is refused before any is started."""

import logging
import subprocess
import sys

import pytest
import torch

from elfnet.errors import RequestError
from elfnet.recipe.load import load_recipe
from elfnet.train.launch import (
    Launch,
    is_first_process,
    lost_others,
    refuse_empty_shards,
    refuse_mixed_features,
    refuse_uneven_batches,
    restarted,
    start,
)
from elfnet.train.machine import device_and_precision


@pytest.fixture
def torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of process 5 of 2 nodes with 4 devices each, started again once."""
    for name, value in {
        "TORCHELASTIC_RUN_ID": "x",
        "TORCHELASTIC_RESTART_COUNT": "1",
        "LOCAL_WORLD_SIZE": "4",
        "WORLD_SIZE": "8",
        "RANK": "5",
        "LOCAL_RANK": "1",
    }.items():
        monkeypatch.setenv(name, value)


def test_one_process_unless_asked() -> None:
    assert Launch().resolve().world_size == 1
    assert Launch(devices=4, num_nodes=2).resolve().world_size == 8
    assert is_first_process()
    assert not restarted()


def test_starting_logs_nothing(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fabric's line about the precision would stand before the one line of a refusal."""
    caplog.set_level(logging.INFO, logger="lightning_fabric")
    monkeypatch.setattr(logging.getLogger("lightning_fabric"), "propagate", True)
    start(Launch(), device="cpu", precision="bf16-mixed")
    assert not caplog.records


@pytest.mark.usefixtures("torchrun")
def test_torchrun_is_found() -> None:
    assert Launch().resolve() == Launch(devices=4, num_nodes=2)
    assert not is_first_process()
    assert restarted()
    with pytest.raises(RequestError, match="--devices 2 contradicts torchrun, which started 4"):
        Launch(devices=2).resolve()


@pytest.mark.parametrize("wrong", [{"devices": 0}, {"num_nodes": -1}, {"timeout": 0}])
def test_numbers_must_be_positive(wrong: dict[str, int]) -> None:
    with pytest.raises(RequestError, match="must be positive"):
        Launch(**wrong).resolve()


def test_a_batch_that_cannot_be_divided_is_refused() -> None:
    refuse_uneven_batches(128, 2, Launch(devices=8))
    with pytest.raises(RequestError, match=r"train.batch_size=128 cannot be divided among 6 processes; use a multiple"):
        refuse_uneven_batches(128, 1, Launch(devices=3, num_nodes=2))
    with pytest.raises(RequestError, match=r"among 4 processes times train.accumulate=3; use a multiple of 12"):
        refuse_uneven_batches(128, 3, Launch(devices=4))


def test_a_process_without_an_image_is_refused_where_each_must_have_one() -> None:
    recipe, reason = load_recipe("digits/bbn", {"train.batch_size": 64}), "model.branches=2"
    refuse_empty_shards(recipe, 129, world_size=1)
    refuse_empty_shards(recipe, 130, world_size=2)
    refuse_empty_shards(recipe, 128, world_size=2)
    refuse_empty_shards(load_recipe("digits/ce"), 129, world_size=2)
    with pytest.raises(RequestError, match=f"{reason} needs an image for each of 2 processes .* has 1; change train"):
        refuse_empty_shards(recipe, 129, world_size=2)


def test_features_are_mixed_in_one_process_only() -> None:
    refuse_mixed_features("manifold", Launch())
    refuse_mixed_features("mixup", Launch(devices=2))
    with pytest.raises(RequestError) as refused:
        refuse_mixed_features("manifold", Launch(devices=2))
    assert str(refused.value) == (
        "train.mix=manifold mixes features of a whole batch, and 2 processes have a part each; train with one process, "
        "or set train.mix=mixup"
    )


def test_accumulating_must_divide_the_batch() -> None:
    with pytest.raises(RequestError, match=r"train.accumulate=3 does not divide train.batch_size=128"):
        load_recipe("digits/elf-ce-drw", {"train.accumulate": 3, "train.batch_size": 128})


def test_synchronised_batch_norm_is_for_gpus_that_run_every_stage() -> None:
    train = load_recipe("digits/elf-ce-drw", {"train.sync_batch_norm": True, "train.device": "cpu"}).train
    with pytest.raises(RequestError, match=r"train.sync_batch_norm=true needs GPUs, and this run is on cpu"):
        device_and_precision(train, None)
    with pytest.raises(RequestError, match=r"set exits.after_exit=mask"):
        load_recipe("digits/elf-ce-drw", {"train.sync_batch_norm": True, "exits.after_exit": "drop"})


@pytest.mark.skipif(torch.cuda.is_available(), reason="there are GPUs")
def test_devices_that_are_not_there_are_refused() -> None:
    with pytest.raises(RequestError, match="--devices 2: this machine has 0 GPUs"):
        start(Launch(devices=2), device="cuda", precision="32-true")
    with pytest.raises(RequestError, match="Apple's GPU is one device"):
        start(Launch(devices=2), device="mps", precision="32-true")


def test_several_machines_without_an_address_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with pytest.raises(RequestError, match="--num-nodes 2 needs the address of the first machine: set MASTER_ADDR"):
        start(Launch(devices=1, num_nodes=2, timeout=1), device="cpu", precision="32-true")


@pytest.mark.slow
def test_connections_are_closed_when_python_ends() -> None:
    """Threads of theirs that still run while Python ends may abort the process, and torchrun would call that failed."""
    script = (
        "import atexit, os, torch\n"
        "from elfnet.train.launch import leave_when_done\n"
        "atexit.register(lambda: print(torch.distributed.is_initialized()))\n"
        "os.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT='0')\n"
        "torch.distributed.init_process_group('gloo', store=torch.distributed.HashStore(), rank=0, world_size=1)\n"
        "leave_when_done()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_losing_the_others_is_told_apart_from_other_failures() -> None:
    closed = RuntimeError("[/x/gloo/transport/tcp/pair.cc:537] Connection closed by peer. This is\nlong")
    late = RuntimeError("[gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 2000ms for recv")
    launch = Launch(devices=2, timeout=2)
    assert "another process of this run ended (Connection closed by peer)" in str(lost_others(closed, launch))
    assert "did not answer within 2 s (Timed out" in str(lost_others(late, launch))
    assert lost_others(closed, Launch()) is None
    assert lost_others(RuntimeError("shapes do not match"), launch) is None
