"""Reading batches ahead in worker processes that stay from epoch to epoch (torch's DataLoader does the work).

Workers are not forked from this process: by the time they start it has threads (torch's own, OpenMP's, compilers'),
and a fork of a process with threads may find their locks taken for ever. They are forked from a server instead, a
process that has imported what they need and done nothing else.
"""

import multiprocessing
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import forkserver
from multiprocessing.context import BaseContext
from pickle import PicklingError
from types import ModuleType
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from elfnet.data.batch_reader import Request
from elfnet.data.examples import Ints
from elfnet.errors import WorkError

R = TypeVar("R")
SECONDS_TO_END = 10.0
PRELOADED = ["elfnet.data.file_batches", "elfnet.data.pack_images", "torch.utils.data._utils.worker"]
"""What the server imports, so that no worker has to."""


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
        reader: sent to every worker, so it must be cheap to pickle.
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
            multiprocessing_context=_server() if workers else None,
            # A generator of its own: making an iterator draws from it, and must not disturb torch's global one.
            generator=torch.Generator(),
        )

    def read(self, epoch: int, parts: list[Ints], repeats: list[Ints] | None = None) -> Iterator[R]:
        """Batches of these positions, in order; `repeats` tells how often each was read before in the epoch."""
        self._requests.epoch, self._requests.parts = epoch, parts
        self._requests.repeats = [np.zeros_like(rows_B) for rows_B in parts] if repeats is None else repeats
        try:
            with _without_main(), warnings.catch_warnings():
                # What cannot be pickled is told below.
                warnings.filterwarnings("ignore", "Got pickle error")
                self._running = iter(self._loader)
        except (PicklingError, AttributeError, TypeError) as error:
            raise WorkError(
                f"what reads the images cannot be sent to worker processes ({error}); "
                "define it in a module that can be imported, or set data.workers=0"
            ) from error
        try:
            yield from self._running
        except (RuntimeError, OSError, EOFError) as error:
            # A worker that ends while it hands over a batch is noticed as a connection that breaks.
            broken = isinstance(error, OSError | EOFError) and self._loader.num_workers > 0
            if isinstance(error, WorkError) or not (broken or "worker" in str(error)):
                raise
            what = (str(error) or type(error).__name__).splitlines()[0]
            raise WorkError(
                f"a process that reads images ended unexpectedly ({what}); it may have run out of memory: "
                "lower data.workers"
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


def _server() -> BaseContext:
    """Where workers come from; its server begins to import now, while this process does something else."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    forkserver.ensure_running()
    return context


@contextmanager
def _without_main() -> Iterator[None]:
    """Start processes that do not run the user's script again, as Python's would.

    They need nothing of it, and one without `if __name__ == "__main__"` would begin anew in every worker.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
