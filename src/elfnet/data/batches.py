"""Batches from images that fit in memory. Order and augmentation are a pure function of (seed, epoch)."""

# Shapes: N images, B batch, H height, W width, K channels

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from elfnet.data.augment import CropFlipNormalise, normalise
from elfnet.data.source import LabelledImages


@dataclass(frozen=True)
class Normalisation:
    """Mean and standard deviation of each channel of the training images, in [0, 1]."""

    mean_K: tuple[float, ...]
    std_K: tuple[float, ...]

    @classmethod
    def of(cls, images: LabelledImages) -> "Normalisation":
        """Measured on the training split only, in integers, so that it is exact and needs no float copy."""
        pixels = images.images_NHWC.reshape(-1, images.images_NHWC.shape[-1])
        values = np.arange(256, dtype=np.float64) / 255
        means, stds = [], []
        for channel in range(pixels.shape[1]):
            share = np.bincount(pixels[:, channel], minlength=256) / len(pixels)
            mean = float((share * values).sum())
            means.append(mean)
            # A constant channel has no spread; leave it as it is instead of dividing by zero.
            stds.append(float(np.sqrt((share * (values - mean) ** 2).sum())) or 1.0)
        return cls(tuple(means), tuple(stds))


class TrainingBatches:
    """Shuffled, augmented batches; the last one of an epoch may be smaller."""

    def __init__(
        self,
        images: LabelledImages,
        normalisation: Normalisation,
        *,
        batch_size: int,
        seed: int,
        pad: int,
        flip: bool,
        device: torch.device,
        channels_last: bool = True,
    ) -> None:
        self.batch_size = min(batch_size, len(images.labels_N))
        self._seed = seed
        self._channels_last = channels_last
        self._labels_N = torch.from_numpy(images.labels_N).to(device)
        self._augment = CropFlipNormalise(
            torch.from_numpy(images.images_NHWC).to(device),
            mean_K=torch.tensor(normalisation.mean_K),
            std_K=torch.tensor(normalisation.std_K),
            pad=pad,
            flip=flip,
        )

    def __len__(self) -> int:
        """Steps in an epoch."""
        return -(-len(self._labels_N) // self.batch_size)

    def epoch(self, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """(images, labels) of each step of an epoch."""
        # SeedSequence mixes seed and epoch, so that neighbouring seeds do not share epochs.
        mixed = int(np.random.SeedSequence([self._seed, epoch]).generate_state(1, np.uint64)[0] >> 1)
        generator = torch.Generator().manual_seed(mixed)
        order_N = torch.randperm(len(self._labels_N), generator=generator).to(self._labels_N.device)
        for chosen_B in torch.split(order_N, self.batch_size):
            images = self._augment(chosen_B, generator)
            yield images if self._channels_last else images.contiguous(), self._labels_N[chosen_B]


class EvaluationBatches:
    """Every image once, in order, normalised only."""

    def __init__(
        self, images: LabelledImages, normalisation: Normalisation, *, batch_size: int, device: torch.device
    ) -> None:
        self._images_NHWK = torch.from_numpy(images.images_NHWC)
        self._mean_K = torch.tensor(normalisation.mean_K, device=device)
        self._std_K = torch.tensor(normalisation.std_K, device=device)
        self._batch_size, self._device = batch_size, device

    def __len__(self) -> int:
        return -(-len(self._images_NHWK) // self._batch_size)

    def __iter__(self) -> Iterator[Tensor]:
        for part in torch.split(self._images_NHWK, self._batch_size):
            yield normalise(part.to(self._device), mean_K=self._mean_K, std_K=self._std_K)
