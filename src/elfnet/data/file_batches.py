"""Batches from encoded images: read and augmented in worker processes, finished on the device.

Workers hand over bytes, a quarter of the traffic of floats; colours and normalising are done for a whole batch at once.
"""

# Shapes: N images, B batch, S side, K colours

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from elfnet.data.batch_reader import BatchReader, ReadBatch
from elfnet.data.batches import Normalisation, epoch_generator
from elfnet.data.colour import erase, jitter_and_normalise, normalise_bytes
from elfnet.data.epoch_order import EpochOrder
from elfnet.data.examples import Ints
from elfnet.data.image_files import EncodedImages
from elfnet.data.image_reader import ImageReader
from elfnet.data.preparation import Augmentation, Evaluation
from elfnet.data.share import WHOLE, Share
from elfnet.data.unreadable import Unreadable
from elfnet.data.worker_processes import WorkerProcesses

BatchTransform = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Changes a finished batch (images, labels); the place for mixup and its like."""


class FileTrainingBatches:
    """Shuffled, augmented batches of an epoch; the last one may be smaller, and so is one with unreadable images."""

    def __init__(
        self,
        images: EncodedImages,
        reader: ImageReader,
        evaluation: Evaluation,
        augmentation: Augmentation,
        normalisation: Normalisation,
        *,
        batch_size: int,
        seed: int,
        device: torch.device,
        workers: int,
        unreadable: str = "stop",
        channels_last: bool = True,
        transform: BatchTransform | None = None,
        sampler: str = "shuffle",
        share: Share = WHOLE,
    ) -> None:
        self.batch_size = min(batch_size, len(images))
        self.unreadable = Unreadable(unreadable)
        self._order, self._share = EpochOrder(images.labels_N, sampler), share
        self._labels_N = torch.from_numpy(images.labels_N)
        self._seed, self._device, self._channels_last, self._transform = seed, device, channels_last, transform
        self._finish = _Finish(normalisation, device)
        batch_reader = BatchReader(reader, evaluation, augmentation, seed=seed)
        self._workers = WorkerProcesses(batch_reader, workers=workers, device=device, keep_workers=True)

    def __len__(self) -> int:
        """Steps in an epoch."""
        return -(-len(self._labels_N) // self.batch_size)

    def epoch(self, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """(images, labels) of each step of an epoch."""
        rows, repeats = (
            [self._share.of(part).numpy() for part in torch.split(drawn_N, self.batch_size)]
            for drawn_N in self._order.draw(epoch_generator(self._seed, epoch))
        )
        for batch in self._workers.read(epoch, rows, repeats):
            self.unreadable.meet(batch.failures)
            # Where several processes train together, every one must take every step.
            if not len(batch.rows_B) and self._share.world == 1:
                continue
            images = self._finish(batch)
            images = images if self._channels_last else images.contiguous()
            labels_B = self._labels_N[batch.rows_B].to(self._device, non_blocking=True)
            yield (images, labels_B) if self._transform is None else self._transform(images, labels_B)

    def close(self) -> None:
        """End the worker processes."""
        self._workers.close()

    def skipped(self) -> int:
        """Different images that could not be read so far."""
        return self.unreadable.count


class FileEvaluationBatches:
    """Every image once, in order, resized and cropped in the middle."""

    def __init__(
        self,
        images: EncodedImages,
        reader: ImageReader,
        evaluation: Evaluation,
        normalisation: Normalisation,
        *,
        batch_size: int,
        device: torch.device,
        workers: int,
        unreadable: str = "stop",
        share: Share = WHOLE,
    ) -> None:
        self.unreadable = Unreadable(unreadable)
        rows = share.of(np.arange(len(images)))
        self._rows = np.split(rows, range(batch_size, len(rows), batch_size))
        self._read: list[Ints] = []
        self._device = device
        self._finish = _Finish(normalisation, device)
        self._workers = WorkerProcesses(
            BatchReader(reader, evaluation), workers=workers, device=device, keep_workers=False
        )

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Tensor]:
        self._read = []
        try:
            for batch in self._workers.read(-1, self._rows):
                self.unreadable.meet(batch.failures)
                if len(batch.rows_B):
                    self._read.append(batch.rows_B.numpy())
                    yield self._finish(batch)
        finally:
            self._workers.close()

    def rows(self) -> Ints:
        """Positions of the images that the last pass gave, in order: all but those that were skipped."""
        return np.concatenate([np.zeros(0, dtype=np.int64), *self._read])


class _Finish:
    """uint8 (B, S, S, K) to normalised float32 (B, K, S, S) in channels_last memory, on the device."""

    def __init__(self, normalisation: Normalisation, device: torch.device) -> None:
        self._mean_K, self._std_K = normalisation.tensors(device)
        self._device = device

    def __call__(self, batch: ReadBatch) -> Tensor:
        pixels = batch.pixels_BSSK.to(self._device, non_blocking=True)
        if batch.factors_B3 is None or not len(batch.rows_B):
            images = normalise_bytes(pixels, mean_K=self._mean_K, std_K=self._std_K)
        else:
            factors_B3 = batch.factors_B3.to(self._device, non_blocking=True)
            images = jitter_and_normalise(pixels, factors_B3, mean_K=self._mean_K, std_K=self._std_K)
        return images if batch.holes_BR4 is None else erase(images, batch.holes_BR4)
