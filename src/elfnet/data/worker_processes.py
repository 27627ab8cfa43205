"""Reading batches ahead in worker processes that stay from epoch to epoch (torch's DataLoader does the work)."""

from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from elfnet.data.batch_reader import Request
from elfnet.data.examples import Ints
from elfnet.errors import WorkError

R = TypeVar("R")
SECONDS_TO_END = 10.0


class Requests(Sampler[Request]):
    """The batches of the epoch that was set last; lives in the main process, so that workers can stay."""

    def __init__(self) -> None:
        self.epoch, self.parts = -1, [np.zeros(0, dtype=np.int64)]
        self.repeats = self.parts

    def __iter__(self) -> Iterator[Request]:
        for rows_B, repeat_B in zip(self.parts, self.repeats, strict=True):
            yield self.epoch, rows_B, repeat_B

    def __len__(self) -> int:
        return len(self.parts)


def _unchanged(batch: Any) -> Any:
    return batch


class WorkerProcesses(Generic[R]):
    """Whole batches are asked for, so that a worker needs nothing but a request to make one.

    Args:
        workers: processes; 0 reads in this one.
        keep_workers: between epochs, until `close`.
    """

    def __init__(self, reader: Dataset[R], *, workers: int, device: torch.device, keep_workers: bool) -> None:
        self._requests = Requests()
        self._running: Any = None
        self._loader: DataLoader[R] = DataLoader(
            reader,
            batch_size=None,
            sampler=self._requests,
            num_workers=workers,
            collate_fn=_unchanged,
            persistent_workers=keep_workers and workers > 0,
            pin_memory=device.type == "cuda",
            # A generator of its own: making an iterator draws from it, and must not disturb torch's global one.
            generator=torch.Generator(),
        )

    def read(self, epoch: int, parts: list[Ints], repeats: list[Ints] | None = None) -> Iterator[R]:
        """Batches of these positions, in order; `repeats` tells how often each was read before in the epoch."""
        self._requests.epoch, self._requests.parts = epoch, parts
        self._requests.repeats = [np.zeros_like(rows_B) for rows_B in parts] if repeats is None else repeats
        self._running = iter(self._loader)
        try:
            yield from self._running
        except RuntimeError as error:
            if isinstance(error, WorkError) or "worker" not in str(error):
                raise
            raise WorkError(
                f"a process that reads images ended unexpectedly ({str(error).splitlines()[0]}); it may have run out "
                "of memory: lower data.workers"
            ) from error

    def close(self) -> None:
        """End the workers."""
        # torch ends them when the iterator goes; that may be long after an error, whose traceback holds it.
        running, self._running, self._loader._iterator = self._running, None, None
        if running is not None and hasattr(running, "_shutdown_workers"):
            running._shutdown_workers()
            # The threads that fed the workers end by themselves, a moment later: wait for them.
            for queue in getattr(running, "_index_queues", ()):
                feeder = getattr(queue, "_thread", None)
                if feeder is not None:
                    feeder.join(timeout=SECONDS_TO_END)
