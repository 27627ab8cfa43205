"""Encoded images: read and augmented in worker processes, finished on the device.

Workers send bytes, a quarter of the traffic of floats; colours and normalising are done for a whole batch at once.
"""

# Shapes: r images that are read, S side, K colours

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from elfnet.data.images.decode import Unreadable
from elfnet.data.images.files import ImageReader
from elfnet.data.images.transforms import Augmentation, Evaluation
from elfnet.data.loading.feed import BatchSource, Read, Request
from elfnet.data.loading.normalise import Normalisation, erase, jitter_and_normalise, normalise_bytes
from elfnet.data.loading.workers import BatchReader, ReadBatch, WorkerProcesses


class FileSource(BatchSource):
    """Images of a split that are decoded when they are asked for, or lie in a packed cache.

    Args:
        augmentation: None reads for evaluation: images are resized and cropped in the middle.
        seed: of the random numbers of the images.
        workers: processes that read; 0 reads in this one. Those of training stay between epochs.
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
        self._unreadable = Unreadable(unreadable)
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
            self._unreadable.meet(batch.failures)
            yield Read(self._finished(batch), batch.place_B.numpy())

    def close(self) -> None:
        """End the worker processes."""
        self._workers.close()

    def skipped(self) -> int:
        return self._unreadable.count

    def _finished(self, batch: ReadBatch) -> Tensor:
        """Float32 (r, K, S, S), normalised, in channels_last memory."""
        pixels = batch.pixels_BSSK.to(self._device, non_blocking=True)
        if batch.factors_B3 is None or not len(batch.place_B):
            images = normalise_bytes(pixels, mean_K=self._mean_K, std_K=self._std_K)
        else:
            factors_B3 = batch.factors_B3.to(self._device, non_blocking=True)
            images = jitter_and_normalise(pixels, factors_B3, mean_K=self._mean_K, std_K=self._std_K)
        return images if batch.holes_BR4 is None else erase(images, batch.holes_BR4)
