"""Communication between the processes of a run. With one process every operation is the identity."""

import json
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.distributed import ReduceOp

from elfnet.data.loading.sampler import Shard
from elfnet.errors import ElfnetError, RequestError, WorkError

T = TypeVar("T")


class DistributedContext:
    """The processes that share a Fabric: collective operations, and errors that all processes raise together.

    Attributes:
        fabric: launched.
        rank: of this process among all processes.
        world_size: number of processes.
        shard: the part of every batch and split that this process reads.
        on_this_node: number of processes per node.
    """

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self.rank, self.world_size = fabric.global_rank, fabric.world_size
        self.shard = Shard(self.rank, self.world_size)
        nodes = getattr(fabric.strategy, "num_nodes", 1)
        self.on_this_node = self.world_size // nodes

    @property
    def is_rank0(self) -> bool:
        """Whether this process writes files and talks to the user."""
        return self.rank == 0

    def all_reduce(self, tensor: Tensor) -> Tensor:
        """Sum a tensor over all processes, in place."""
        if self.world_size > 1:
            torch.distributed.all_reduce(tensor)
        return tensor

    def all_reduce_async(self, tensor: Tensor) -> Callable[[], Tensor]:
        """Start `all_reduce` without waiting for it. The returned function waits and returns the sum."""
        if self.world_size == 1:
            return lambda: tensor
        work = torch.distributed.all_reduce(tensor, async_op=True)

        def wait() -> Tensor:
            work.wait()
            return tensor

        return wait

    def any(self, here: bool) -> bool:
        """Whether `here` is true in any process."""
        return bool(self.all_reduce(torch.tensor(int(here), device=self.fabric.device)))

    def all_gather(self, content: Any) -> list[Any]:
        """Return the JSON-compatible `content` of every process, by rank. It is sent as JSON, never as a pickle."""
        if self.world_size == 1:
            return [content]
        device = self.fabric.device
        sent = torch.frombuffer(bytearray(json.dumps(content).encode()), dtype=torch.uint8).to(device)
        length = torch.tensor([len(sent)], device=device)
        lengths = [torch.zeros_like(length) for _ in range(self.world_size)]
        torch.distributed.all_gather(lengths, length)
        longest = max(int(one) for one in lengths)
        arrived = [torch.zeros(longest, dtype=torch.uint8, device=device) for _ in range(self.world_size)]
        torch.distributed.all_gather(arrived, nn.functional.pad(sent, (0, longest - len(sent))))
        return [json.loads(bytes(text[: int(size)].cpu().numpy())) for text, size in zip(arrived, lengths, strict=True)]

    def fail_together(self, action: Callable[[], T]) -> T:
        """Run `action` in every process. If it raises an `ElfnetError` in one, all processes raise its message."""
        result, failure = _attempt(action)
        self._agree(failure)
        assert result is not None
        return result[0]

    def rank0_first(self, action: Callable[[], T]) -> T:
        """Like `fail_together`, but the first process of each node runs before the others, to download or pack data."""
        goes_first = self.fabric.local_rank == 0
        result, failure = _attempt(action) if goes_first else (None, None)
        self._agree(failure)
        if not goes_first:
            result, failure = _attempt(action)
        self._agree(failure)
        assert result is not None
        return result[0]

    def broadcast_from_rank0(self, action: Callable[[], Any]) -> Any:
        """Run `action` in rank 0 only. Every process returns its JSON-compatible result, or raises its error."""
        result, failure = _attempt(action) if self.is_rank0 else (None, None)
        self._agree(failure)
        return self.all_gather(None if result is None else result[0])[0]

    def average_statistics(self, network: nn.Module, averaged: nn.Module | None = None) -> None:
        """Replace the running statistics of batch norm by their mean over all processes.

        Frozen and synchronised layers are skipped: their statistics are equal in all processes.

        Args:
            averaged: a copy of the network with a moving average of its weights; its statistics are averaged too.
        """
        if self.world_size == 1:
            return
        copies = (averaged or network).modules()
        for module, other in zip(network.modules(), copies, strict=True):
            learns = isinstance(module, nn.modules.batchnorm._BatchNorm) and module.training
            if not learns or isinstance(module, nn.SyncBatchNorm):
                continue
            statistics = list(module.named_buffers(recurse=False))
            statistics += [] if other is module else list(other.named_buffers(recurse=False))
            for name, statistic in statistics:
                if name == "num_batches_tracked":
                    torch.distributed.all_reduce(statistic, ReduceOp.MAX)
                else:
                    torch.distributed.all_reduce(statistic)
                    statistic /= self.world_size

    def _agree(self, failure: ElfnetError | None) -> None:
        """Raise in every process if any process has a failure."""
        said = None if failure is None else [isinstance(failure, RequestError), str(failure)]
        for one in self.all_gather(said):
            if one is not None:
                if failure is not None and self.world_size == 1:
                    raise failure
                wrong_request, text = one
                raise SharedRequestError(text) if wrong_request else SharedWorkError(text)


class SharedError(ElfnetError):
    """A failure that every process raises; rank 0 reports it to the user."""


class SharedRequestError(SharedError, RequestError):
    """A `RequestError` that every process raises."""


class SharedWorkError(SharedError, WorkError):
    """A `WorkError` of one process that every process raises."""


def _attempt(action: Callable[[], T]) -> tuple[tuple[T] | None, ElfnetError | None]:
    try:
        return (action(),), None
    except ElfnetError as error:
        return None, error
