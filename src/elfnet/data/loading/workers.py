"""Batches of image files: worker processes read and augment them ahead, with torch's DataLoader.

Workers persist between epochs.
Workers are not forked from this process: it has threads (of torch, OpenMP and compilers), and a fork may inherit their
locks in a locked state and deadlock. They are forked from a fork server instead, which has only imported the modules
that workers need.

Workers send uint8, a quarter of the size of float32. Colour changes, normalisation and erasing are applied to whole
batches on their device.
"""

# Shapes: B images of a batch, r examples of a request, S side, K colours, R rectangles per image

import multiprocessing
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from multiprocessing import forkserver
from multiprocessing.context import BaseContext
from pickle import PicklingError
from types import ModuleType
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from elfnet.data.images.decode import UnreadableImageError, UnreadableLog
from elfnet.data.images.files import ImageReader
from elfnet.data.images.operations import Hole
from elfnet.data.images.resize import Pixels
from elfnet.data.images.transforms import Augmentation, Evaluation
from elfnet.data.loading.feed import BatchSource, Read, Request
from elfnet.data.loading.normalise import Normalisation, erase, holes_tensor, jitter_and_normalise, normalise_bytes
from elfnet.data.loading.sampler import ExampleRng
from elfnet.data.types import Ints
from elfnet.errors import WorkError

R = TypeVar("R")
JOIN_TIMEOUT_SECONDS = 10.0
PRELOADED = [__name__, "elfnet.data.loading.pack", "torch.utils.data._utils.worker"]
"""Modules that the fork server imports, so that workers do not have to."""

WorkerRequest = tuple[int, Ints, Ints]
"""A task of a worker: the epoch, rows, and how often each row was read before in the epoch."""


class ReadBatch(NamedTuple):
    """The result of a worker. Failures are values, since torch would wrap an exception in its traceback.

    Attributes:
        pixels_BSSK: uint8 pixels of the readable images.
        place_B: Positions of these images in the request.
        factors_B3: Factors of brightness, contrast and saturation, to apply on the device; None for no change.
        holes_BR4: Rectangles to erase on the device after normalisation; None for none.
        failures: Name and problem of each unreadable image.
    """

    pixels_BSSK: Tensor
    place_B: Tensor
    factors_B3: Tensor | None
    holes_BR4: Tensor | None
    failures: tuple[tuple[str, str], ...]


class BatchReader(Dataset[ReadBatch]):
    """Reads and augments the images of one request in a worker process.

    The random numbers of an image are a function of (seed, epoch, row, repeat): see `ExampleRng`.

    Args:
        reader: Reads crops of images.
        evaluation: The evaluation transform.
        augmentation: The training transform; None for evaluation.
        seed: Seed of the augmentation.
    """

    def __init__(
        self,
        reader: ImageReader,
        evaluation: Evaluation,
        augmentation: Augmentation | None = None,
        *,
        seed: int = 0,
    ) -> None:
        self._reader, self._evaluation, self._augmentation = reader, evaluation, augmentation
        self._seed = seed

    def __getitem__(self, request: WorkerRequest) -> ReadBatch:
        epoch, rows_B, repeat_B = request
        side = self._evaluation.image_size
        pixels = np.empty((len(rows_B), side, side, 3), dtype=np.uint8)
        numbers = ExampleRng(self._seed, epoch)
        jitters = self._augmentation if self._augmentation is not None and self._augmentation.jitter else None
        erases = self._augmentation if self._augmentation is not None and self._augmentation.erases else None
        kept: list[int] = []
        factors: list[tuple[float, float, float]] = []
        holes: list[list[Hole]] = []
        failures: list[tuple[str, str]] = []
        for place, (row, repeat) in enumerate(zip(rows_B.tolist(), repeat_B.tolist(), strict=True)):
            rng = numbers.of(row, repeat)
            try:
                pixels[len(kept)] = self._transformed(row, rng)
            except UnreadableImageError as error:
                failures.append((self._reader.name(row), str(error)))
                continue
            if jitters is not None:
                factors.append(jitters.colour_factors(rng))
            if erases is not None:
                holes.append(erases.holes(side, side, rng))
            kept.append(place)
        return ReadBatch(
            torch.from_numpy(pixels[: len(kept)]),
            torch.tensor(kept, dtype=torch.int64),
            None if jitters is None else torch.tensor(factors).view(-1, 3),
            None if erases is None else holes_tensor(holes),
            tuple(failures),
        )

    def _transformed(self, row: int, rng: np.random.Generator) -> Pixels:
        read = partial(self._reader.part, row)
        if self._augmentation is None:
            return self._evaluation(read)
        return self._augmentation.augment_file(read, self._evaluation, rng)


class Requests(Sampler[WorkerRequest]):
    """Sampler of the requests of the current epoch; it is in the main process, so that workers can persist."""

    def __init__(self) -> None:
        self.epoch, self.parts = 0, [np.zeros(0, dtype=np.int64)]
        self.repeats = self.parts

    def __iter__(self) -> Iterator[WorkerRequest]:
        for rows_B, repeat_B in zip(self.parts, self.repeats, strict=True):
            yield self.epoch, rows_B, repeat_B

    def __len__(self) -> int:
        return len(self.parts)


def _unchanged(batch: Any) -> Any:
    return batch


class WorkerProcesses(Generic[R]):
    """Worker processes that each read whole batches.

    Args:
        reader: Reads one request; it is sent to every worker, so it must be cheap to pickle.
        workers: Number of processes; 0 reads in this process.
        device: Device of the batches; memory is pinned for CUDA.
        keep_workers: Whether workers persist between epochs, until `close`.
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
            multiprocessing_context=_start_method() if workers else None,
            # A separate generator: creating an iterator draws from it and must not change torch's global one.
            generator=torch.Generator(),
        )

    def read(self, epoch: int, parts: list[Ints], repeats: list[Ints] | None = None) -> Iterator[R]:
        """Read batches in order.

        Args:
            parts: Rows of each batch.
            repeats: How often each row was read before in the epoch; None for never.

        Raises:
            WorkError: If the reader cannot be pickled, or a worker ends unexpectedly.
        """
        self._requests.epoch, self._requests.parts = epoch, parts
        self._requests.repeats = [np.zeros_like(rows_B) for rows_B in parts] if repeats is None else repeats
        try:
            with _without_main(), warnings.catch_warnings():
                # Pickle errors are reported below.
                warnings.filterwarnings("ignore", "Got pickle error")
                self._running = iter(self._loader)
        except (PicklingError, AttributeError, TypeError) as error:
            raise WorkError(
                f"the image reader cannot be sent to worker processes ({error}); "
                "define it in a module that can be imported, or set data.workers=0"
            ) from error
        try:
            yield from self._running
        except (RuntimeError, OSError, EOFError) as error:
            # If a worker ends while it sends a batch, the connection breaks.
            broken = isinstance(error, OSError | EOFError) and self._loader.num_workers > 0
            if isinstance(error, WorkError) or not (broken or "worker" in str(error)):
                raise
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise WorkError(
                f"a worker process that reads images ended unexpectedly ({reason}); it may have run out of memory: "
                "lower data.workers"
            ) from error

    def close(self) -> None:
        """End the workers."""
        # torch ends them when the iterator is deleted; after an error its traceback may keep the iterator for long.
        running, self._running, self._loader._iterator = self._running, None, None
        if running is not None and hasattr(running, "_shutdown_workers"):
            running._shutdown_workers()
            # The threads that feed the workers end a moment later: wait for them.
            for queue in getattr(running, "_index_queues", ()):
                feeder = getattr(queue, "_thread", None)
                if feeder is not None:
                    feeder.join(timeout=JOIN_TIMEOUT_SECONDS)


def _start_method() -> BaseContext:
    """Start the fork server, which imports modules in the background; without support for it, workers are spawned."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    forkserver.ensure_running()
    return context


@contextmanager
def _without_main() -> Iterator[None]:
    """Prevent new processes from importing the user's script, as Python's multiprocessing would.

    Workers do not need it, and a script without `if __name__ == "__main__"` would run again in every worker.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


class FileSource(BatchSource):
    """Encoded images of a split, decoded or from the packed cache.

    Args:
        reader: Reads crops of images.
        evaluation: The evaluation transform.
        workers: Number of worker processes; 0 reads in this process. Training workers persist between epochs.
        augmentation: The training transform; None for evaluation.
        seed: Seed of the augmentation.
        unreadable: "stop" raises at an image that cannot be read; "skip" logs and counts it.
    """

    def __init__(
        self,
        reader: ImageReader,
        evaluation: Evaluation,
        normalisation: Normalisation,
        *,
        device: torch.device,
        workers: int,
        augmentation: Augmentation | None = None,
        seed: int = 0,
        unreadable: str = "stop",
    ) -> None:
        self._unreadable = UnreadableLog(unreadable)
        self._mean_K, self._std_K = normalisation.tensors(device)
        self._device = device
        self._workers = WorkerProcesses(
            BatchReader(reader, evaluation, augmentation, seed=seed),
            workers=workers,
            device=device,
            keep_workers=augmentation is not None,
        )

    def read(self, epoch: int, requests: Sequence[Request]) -> Iterator[Read]:
        rows, repeats = [one.rows_r for one in requests], [one.repeat_r for one in requests]
        for batch in self._workers.read(epoch, rows, repeats):
            self._unreadable.report(batch.failures)
            yield Read(self._normalised(batch), batch.place_B.numpy())

    def close(self) -> None:
        """End the worker processes."""
        self._workers.close()

    def skipped(self) -> int:
        return self._unreadable.count

    def _normalised(self, batch: ReadBatch) -> Tensor:
        """Change colours, normalise and erase on the device; float32 (B, K, S, S) in channels_last memory."""
        pixels = batch.pixels_BSSK.to(self._device, non_blocking=True)
        if batch.factors_B3 is None or not len(batch.place_B):
            images = normalise_bytes(pixels, mean_K=self._mean_K, std_K=self._std_K)
        else:
            factors_B3 = batch.factors_B3.to(self._device, non_blocking=True)
            images = jitter_and_normalise(pixels, factors_B3, mean_K=self._mean_K, std_K=self._std_K)
        return images if batch.holes_BR4 is None else erase(images, batch.holes_BR4)
