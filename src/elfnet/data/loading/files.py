"""Batches of encoded images, which are read and augmented in worker processes and normalised on the device.

Workers send uint8, a quarter of the size of float32. Colour changes, normalisation and erasing are applied to whole
batches.
"""

# Shapes: B images of a batch, r examples of a request, S side, K colours, R rectangles per image

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from elfnet.data.images.decode import UnreadableLog
from elfnet.data.images.files import ImageReader
from elfnet.data.images.transforms import Augmentation, Evaluation
from elfnet.data.loading.feed import BatchSource, Read, Request
from elfnet.data.loading.normalise import Normalisation, erase, jitter_and_normalise, normalise_bytes
from elfnet.data.loading.workers import BatchReader, ReadBatch, WorkerProcesses


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
