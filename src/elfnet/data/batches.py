"""What training and evaluation ask batches for, and batches from images that fit in memory.

Order and augmentation are a pure function of (seed, epoch).
"""

# Shapes: N images, B batch, H height, W width, K channels

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from elfnet.data.augment import CropFlipNormalise, PerExample, normalise
from elfnet.data.epoch_order import EpochOrder
from elfnet.data.examples import Ints
from elfnet.data.preparation import Augmentation
from elfnet.data.share import WHOLE, Share
from elfnet.data.source import LabelledImages


class TrainingFeed(Protocol):
    """Batches to train on, from memory or from files."""

    @property
    def batch_size(self) -> int:
        """Of all processes together."""

    def __len__(self) -> int:
        """Steps in an epoch."""

    def epoch(self, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """(images (B, K, H, W), labels (B,)) of each step of an epoch; with a share, this process's part of each."""

    def close(self) -> None:
        """Give back what was opened for it (worker processes); it may be used again afterwards."""

    def skipped(self) -> int:
        """Examples that could not be read so far, where that does not stop the run."""


class EvaluationFeed(Protocol):
    """Every example of a split once, in order."""

    def __iter__(self) -> Iterator[Tensor]: ...

    def rows(self) -> Ints:
        """Positions in the split of the examples that the last pass gave, in order."""


@dataclass(frozen=True)
class Normalisation:
    """Mean and standard deviation of each channel of the training images, in [0, 1]."""

    mean_K: tuple[float, ...]
    std_K: tuple[float, ...]

    @classmethod
    def of(cls, images: LabelledImages) -> "Normalisation":
        """Measured on the training split only, in integers, so that it is exact and needs no float copy."""
        pixels = images.images_NHWC.reshape(-1, images.images_NHWC.shape[-1])
        return cls.of_histogram(np.stack([np.bincount(channel, minlength=256) for channel in pixels.T]))

    @classmethod
    def of_histogram(cls, histogram_KV: Ints) -> "Normalisation":
        """From how often each of the 256 values occurs in each channel."""
        values = np.arange(256, dtype=np.float64) / 255
        means, stds = [], []
        for count_V in histogram_KV:
            share = count_V / count_V.sum()
            mean = float((share * values).sum())
            means.append(mean)
            # A constant channel has no spread; leave it as it is instead of dividing by zero.
            stds.append(float(np.sqrt((share * (values - mean) ** 2).sum())) or 1.0)
        return cls(tuple(means), tuple(stds))

    def tensors(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Mean and deviation as float32 on a device, each of shape (K,)."""
        return torch.tensor(self.mean_K, device=device), torch.tensor(self.std_K, device=device)


def epoch_generator(seed: int, epoch: int) -> torch.Generator:
    """Random numbers of an epoch; seed and epoch are mixed, so that neighbouring seeds do not share epochs."""
    mixed = int(np.random.SeedSequence([seed, epoch]).generate_state(1, np.uint64)[0] >> 1)
    return torch.Generator().manual_seed(mixed)


class TrainingBatches:
    """Shuffled, augmented batches; the last one of an epoch may be smaller."""

    def __init__(
        self,
        images: LabelledImages,
        augmentation: Augmentation,
        normalisation: Normalisation,
        *,
        batch_size: int,
        seed: int,
        device: torch.device,
        channels_last: bool = True,
        sampler: str = "shuffle",
        share: Share = WHOLE,
    ) -> None:
        self.batch_size = min(batch_size, len(images.labels_N))
        self._order, self._share = EpochOrder(images.labels_N, sampler), share
        self._seed = seed
        self._channels_last = channels_last
        self._labels_N = torch.from_numpy(images.labels_N).to(device)
        self._augment: CropFlipNormalise | PerExample
        mean_K, std_K = torch.tensor(normalisation.mean_K), torch.tensor(normalisation.std_K)
        if augmentation.policy is None and not augmentation.erases:
            self._augment = CropFlipNormalise(
                torch.from_numpy(images.images_NHWC).to(device),
                mean_K=mean_K,
                std_K=std_K,
                pad=augmentation.pad if augmentation.crop == "padded" else 0,
                flip=augmentation.flip,
            )
        else:
            self._augment = PerExample(
                images.images_NHWC, augmentation, mean_K=mean_K.to(device), std_K=std_K.to(device), seed=seed
            )

    def __len__(self) -> int:
        """Steps in an epoch."""
        return -(-len(self._labels_N) // self.batch_size)

    def epoch(self, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """(images, labels) of each step of an epoch."""
        generator = epoch_generator(self._seed, epoch)
        drawn = self._order.draw(generator)
        on_device_N = drawn.rows_N.to(self._labels_N.device)
        for chosen_B, rows_B, repeat_B in zip(
            *(torch.split(part_N, self.batch_size) for part_N in (on_device_N, *drawn)), strict=True
        ):
            if isinstance(self._augment, CropFlipNormalise):
                images = self._augment(chosen_B, generator, self._share)
            else:
                images = self._augment(self._share.of(rows_B).numpy(), self._share.of(repeat_B).numpy(), epoch)
            labels_B = self._labels_N[self._share.of(chosen_B)]
            yield images if self._channels_last else images.contiguous(), labels_B

    def close(self) -> None:
        """Nothing was opened."""

    def skipped(self) -> int:
        """What is in memory was read."""
        return 0


class EvaluationBatches:
    """Every image once, in order, normalised only."""

    def __init__(
        self,
        images: LabelledImages,
        normalisation: Normalisation,
        *,
        batch_size: int,
        device: torch.device,
        share: Share = WHOLE,
    ) -> None:
        self._first, end = share.bounds(len(images))
        self._images_NHWK = torch.from_numpy(images.images_NHWC[self._first : end])
        self._mean_K = torch.tensor(normalisation.mean_K, device=device)
        self._std_K = torch.tensor(normalisation.std_K, device=device)
        self._batch_size, self._device = batch_size, device

    def __len__(self) -> int:
        return -(-len(self._images_NHWK) // self._batch_size)

    def __iter__(self) -> Iterator[Tensor]:
        for part in torch.split(self._images_NHWK, self._batch_size) if len(self._images_NHWK) else ():
            yield normalise(part.to(self._device), mean_K=self._mean_K, std_K=self._std_K)

    def rows(self) -> Ints:
        """All of them, or this process's share."""
        return np.arange(self._first, self._first + len(self._images_NHWK))
