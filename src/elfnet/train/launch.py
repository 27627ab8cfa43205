"""Start the processes of a run, one per device, with Lightning Fabric or torchrun; and report lost processes.

On CPUs a "device" is a process. CPU processes communicate with gloo, GPU processes with NCCL.
"""

import atexit
import inspect
import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain
from typing import Any

import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from lightning_fabric.strategies.ddp import DDPStrategy
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from elfnet.errors import RequestError, WorkError
from elfnet.recipe.schema import Recipe

DEFAULT_TIMEOUT = 1800.0
"""Seconds that a process waits for the others; rank 0 may download or pack data in this time."""


@dataclass(frozen=True, kw_only=True)
class Launch:
    """How many processes train a run together.

    Attributes:
        devices: processes per node; None: the number that torchrun started, else 1.
        num_nodes: machines; None: the number that torchrun started, else 1.
        timeout: seconds that a process waits for the others before it fails.
    """

    devices: int | None = None
    num_nodes: int | None = None
    timeout: float = DEFAULT_TIMEOUT

    def resolve(self) -> "Launch":
        """Fill in `devices` and `num_nodes`.

        Raises:
            RequestError: a number contradicts torchrun, or is not positive.
        """
        devices, nodes = 1, 1
        if by_torchrun():
            devices = int(os.environ["LOCAL_WORLD_SIZE"])
            nodes = int(os.environ["WORLD_SIZE"]) // devices
            for name, requested, started in (("devices", self.devices, devices), ("num-nodes", self.num_nodes, nodes)):
                if requested not in (None, started):
                    raise RequestError(
                        f"--{name} {requested} contradicts torchrun, which started {started}; leave it out"
                    )
        resolved = Launch(devices=self.devices or devices, num_nodes=self.num_nodes or nodes, timeout=self.timeout)
        for name, value in (("devices", self.devices), ("num-nodes", self.num_nodes), ("timeout", self.timeout)):
            if value is not None and value <= 0:
                raise RequestError(f"--{name} {value:g} must be positive")
        return resolved

    @property
    def world_size(self) -> int:
        """Total number of processes."""
        return (self.devices or 1) * (self.num_nodes or 1)


def by_torchrun() -> bool:
    """Whether torchrun started this process."""
    return torch.distributed.is_available() and torch.distributed.is_torchelastic_launched()


def restarted() -> bool:
    """Whether torchrun restarted this process after a failure of one of the processes."""
    return by_torchrun() and int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def is_first_process() -> bool:
    """Whether this process is rank 0; known before the processes are connected."""
    if by_torchrun():
        return os.environ["RANK"] == "0"
    return int(os.environ.get("LOCAL_RANK", "0")) == 0 and int(os.environ.get("NODE_RANK", "0")) == 0


def refuse_uneven_batches(batch_size: int, accumulate: int, launch: Launch) -> None:
    """Refuse a batch size that does not split evenly among processes and accumulation parts."""
    if batch_size % (launch.world_size * accumulate):
        parts = f"{launch.world_size} processes" + (f" times train.accumulate={accumulate}" if accumulate > 1 else "")
        raise RequestError(
            f"train.batch_size={batch_size} cannot be divided among {parts}; "
            f"use a multiple of {launch.world_size * accumulate}, or another number of --devices"
        )


def refuse_mixed_features(mix: str, launch: Launch) -> None:
    """Refuse Manifold Mixup in several processes: it mixes features that other processes compute."""
    if mix == "manifold" and launch.world_size > 1:
        raise RequestError(
            f"train.mix=manifold mixes features of a whole batch, and {launch.world_size} processes have a part each; "
            "train with one process, or set train.mix=mixup"
        )


def refuse_empty_shards(recipe: Recipe, examples: int, world_size: int) -> None:
    """Refuse a last batch that leaves a process without an image, where every process must run every layer."""
    reasons = {
        "train.sync_batch_norm=true": recipe.train.sync_batch_norm,
        "model.branches=2": recipe.model.branches == 2,
    }
    needing = [reason for reason, given in reasons.items() if given]
    last = examples % min(recipe.train.batch_size, examples)
    if needing and 0 < last < world_size:
        raise RequestError(
            f"{needing[0]} needs an image for each of {world_size} processes in every step, and the last batch of an "
            f"epoch has {last}; change train.batch_size"
        )


def start(launch: Launch, *, device: str, precision: str) -> Fabric:
    """Start the processes of a run and connect them. It returns in every process once all are connected.

    Args:
        device: cpu, cuda or mps.
        precision: in Lightning Fabric's words (see `fabric_precision`).

    Raises:
        RequestError: the devices or the address of the first machine are missing.
        WorkError: the processes did not connect in time.
    """
    # Fabric logs the precision, and each process that joins; a run prints its own first line.
    for name in ("lightning_fabric", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    if launch.world_size == 1:
        return Fabric(accelerator=device, devices=1, precision=precision)  # type: ignore[arg-type]
    _refuse_devices(device, launch.devices or 1)
    # Batch-norm statistics are averaged once per epoch instead of sent in every step. torch has renamed the setting.
    known = inspect.signature(DistributedDataParallel.__init__).parameters
    sent_each_step = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
    settings: dict[str, Any] = {sent_each_step: False, "gradient_as_bucket_view": True}
    strategy = DDPStrategy(timeout=timedelta(seconds=launch.timeout), **settings)
    fabric = Fabric(
        accelerator=device,
        devices=launch.devices or 1,
        num_nodes=launch.num_nodes or 1,
        strategy=strategy,
        precision=precision,  # type: ignore[arg-type]
    )
    if launch.num_nodes != 1 and "MASTER_ADDR" not in os.environ:
        _refuse_no_address(fabric, launch)
    try:
        if restarted():
            _reconnect(device, launch)
        fabric.launch()
    except (torch.distributed.DistError, RuntimeError) as error:
        address = f"{os.environ.get('MASTER_ADDR', '127.0.0.1')}:{os.environ.get('MASTER_PORT', '?')}"
        way_out = "see the output of the others"
        if launch.num_nodes != 1:
            way_out = (
                f"start it on all {launch.num_nodes} nodes with the same MASTER_ADDR and MASTER_PORT and a different "
                "NODE_RANK each"
            )
        raise WorkError(
            f"the {launch.world_size} processes of this run did not all meet at {address} within {launch.timeout:g} s "
            f"({_first_sentence(error)}); {way_out}, or raise --timeout"
        ) from error
    return fabric


def _refuse_no_address(fabric: Fabric, launch: Launch) -> None:
    """Refuse several machines without an address, unless a cluster such as SLURM provides it.

    Every machine would wait at its own 127.0.0.1.
    """
    if isinstance(getattr(fabric.strategy, "cluster_environment", None), LightningEnvironment):
        raise RequestError(
            f"--num-nodes {launch.num_nodes} needs the address of the first machine: set MASTER_ADDR and MASTER_PORT, "
            "and on each machine its own NODE_RANK, or start it with torchrun"
        )


@contextmanager
def report_lost_processes(launch: Launch) -> Iterator[None]:
    """Report a lost connection to another process as one line, and close the connections after success."""
    try:
        yield
    except RuntimeError as error:
        lost = None if isinstance(error, WorkError) else lost_others(error, launch)
        if lost is None:
            raise
        raise lost from error
    if launch.world_size > 1:
        leave_when_done()


def leave_when_done() -> None:
    """Close the connections to the other processes when this process ends; Fabric does so on GPUs only.

    Call it after all work is done. Closing then does not wait, and no communication thread outlives Python.
    """
    atexit.register(_leave)


def _leave() -> None:
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def lost_others(error: BaseException, launch: Launch) -> WorkError | None:
    """The error to report if another process cannot be reached; None if `error` has another reason."""
    # gloo raises plain RuntimeErrors, which other libraries may wrap.
    texts = [str(one) for one in chain([error], _causes(error))]
    if launch.world_size == 1 or not any(word in text for text in texts for word in ("gloo", "NCCL", "ProcessGroup")):
        return None
    timed_out = any("imed out" in text or "imeout" in text for text in texts)
    what = f"did not answer within {launch.timeout:g} s" if timed_out else "ended"
    return WorkError(
        f"another process of this run {what} ({_first_sentence(error)}); see its output, then continue with --resume"
    )


def _causes(error: BaseException) -> list[BaseException]:
    causes = []
    while (error := error.__cause__) is not None:  # type: ignore[assignment]
        causes.append(error)
    return causes


def _first_sentence(error: BaseException) -> str:
    """The first sentence of a library's error message, without the position in its source."""
    line = re.sub(r"\[\S+:\d+\]\s*(?=\w)", "", str(error).strip().partition("\n")[0])
    return line.partition(". ")[0][:200]


def _reconnect(device: str, launch: Launch) -> None:
    """Connect the processes after a restart.

    The key prefix is new per attempt, because torchrun's store still has the addresses of the ended processes.
    """
    timeout = timedelta(seconds=launch.timeout)
    store, rank, world_size = next(rendezvous("env://", timeout=timeout))
    torch.distributed.init_process_group(
        "nccl" if device == "cuda" else "gloo",
        store=PrefixStore(f"attempt-{os.environ['TORCHELASTIC_RESTART_COUNT']}", store),
        rank=rank,
        world_size=world_size,
        timeout=timeout,
        device_id=torch.device("cuda", int(os.environ["LOCAL_RANK"])) if device == "cuda" else None,
    )


def _refuse_devices(device: str, devices: int) -> None:
    """Refuse more devices than the machine has."""
    if device == "mps":
        raise RequestError(f"--devices {devices}: Apple's GPU is one device; use train.device=cpu, or --devices 1")
    if device == "cuda" and devices > torch.cuda.device_count():
        raise RequestError(
            f"--devices {devices}: this machine has {torch.cuda.device_count()} GPUs; use at most as many"
        )
