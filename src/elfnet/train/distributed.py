"""What the processes of a run tell each other. With one process everything here is the identity."""

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
    """The processes that share a Fabric."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self.rank, self.world_size = fabric.global_rank, fabric.world_size
        self.shard = Shard(self.rank, self.world_size)
        nodes = getattr(fabric.strategy, "num_nodes", 1)
        self.on_this_node = self.world_size // nodes

    @property
    def is_rank0(self) -> bool:
        """Whether this is the process that writes."""
        return self.rank == 0

    def all_reduce(self, tensor: Tensor) -> Tensor:
        """The sum over all processes, in place."""
        if self.world_size > 1:
            torch.distributed.all_reduce(tensor)
        return tensor

    def all_reduce_async(self, tensor: Tensor) -> Callable[[], Tensor]:
        """The same, sent now and waited for when it is called: what lies between does not wait."""
        if self.world_size == 1:
            return lambda: tensor
        work = torch.distributed.all_reduce(tensor, async_op=True)

        def wait() -> Tensor:
            work.wait()
            return tensor

        return wait

    def any(self, here: bool) -> bool:
        """Whether it is true in any process."""
        return bool(self.all_reduce(torch.tensor(int(here), device=self.fabric.device)))

    def all_gather(self, content: Any) -> list[Any]:
        """Plain data of every process, by rank. It travels as JSON: nothing is executed on arrival."""
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
        """Do something that may be refused in every process; what one refuses, all refuse, with the same line."""
        result, failure = _attempt(action)
        self._agree(failure)
        assert result is not None
        return result[0]

    def rank0_first(self, action: Callable[[], T]) -> T:
        """The same, but the first process of each node goes first: it may have to download or to pack."""
        goes_first = self.fabric.local_rank == 0
        result, failure = _attempt(action) if goes_first else (None, None)
        self._agree(failure)
        if not goes_first:
            result, failure = _attempt(action)
        self._agree(failure)
        assert result is not None
        return result[0]

    def broadcast_from_rank0(self, action: Callable[[], Any]) -> Any:
        """Do something in the first process only; every process gets its result (plain data) or its refusal."""
        result, failure = _attempt(action) if self.is_rank0 else (None, None)
        self._agree(failure)
        return self.all_gather(None if result is None else result[0])[0]

    def average_statistics(self, network: nn.Module, averaged: nn.Module | None = None) -> None:
        """Give every process the mean of all running statistics of batch norm, each of which saw its share only.

        Frozen layers learn none; synchronised ones agree already.

        Args:
            averaged: a copy of the network with a moving average of its weights and statistics, treated alike.
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
        said = None if failure is None else [isinstance(failure, RequestError), str(failure)]
        for one in self.all_gather(said):
            if one is not None:
                if failure is not None and self.world_size == 1:
                    raise failure
                wrong_request, text = one
                raise SharedRequestError(text) if wrong_request else SharedWorkError(text)


class SharedError(ElfnetError):
    """A failure that every process knows of: the first one tells the user."""


class SharedRequestError(SharedError, RequestError):
    """The same request is wrong in every process."""


class SharedWorkError(SharedError, WorkError):
    """The work failed in one process, and is given up in all."""


def _attempt(action: Callable[[], T]) -> tuple[tuple[T] | None, ElfnetError | None]:
    try:
        return (action(),), None
    except ElfnetError as error:
        return None, error
