"""CutMix (Yun et al. 2019), and CutMix that pastes patches of rare classes (CMO, Park et al. 2022)."""

# Shapes: N training examples, C classes, B batch of all processes, b this process's part of it

import math
from typing import NamedTuple

import numpy as np

from elfnet.data.loading.feed import Partners, Request, TrainingBatch
from elfnet.data.types import Ints
from elfnet.losses.base import Labels
from elfnet.methods.mixup import MixedBatch, MixSchedule, PairMixing

# Patches are augmented by numbers of their own, not by those of the same image as a part of the batch.
FIRST_PATCH = 1 << 40
PATCHES_PER_STEP = 1 << 20


class Box(NamedTuple):
    """Rows `top` to `bottom` and columns `left` to `right`, the last ones excluded."""

    top: int
    left: int
    bottom: int
    right: int

    def share_outside(self, height: int, width: int) -> float:
        """The share of the image that the box leaves."""
        return 1 - (self.bottom - self.top) * (self.right - self.left) / (height * width)


def draw_box(height: int, width: int, share: float, rng: np.random.Generator) -> Box:
    """A box with the shape of the image that leaves this share of it, around a random pixel.

    What is outside the image is cut off, so the box may leave more.
    """
    scale = math.sqrt(1 - share)
    half_height, half_width = int(height * scale) // 2, int(width * scale) // 2
    y, x = int(rng.integers(height)), int(rng.integers(width))
    return Box(
        max(y - half_height, 0), max(x - half_width, 0), min(y + half_height, height), min(x + half_width, width)
    )


class CutMix(PairMixing):
    """Pastes a box of another image of the batch into each image; one box per batch.

    The share of a label is the share of the image that shows it.
    """

    def mix(self, batch: TrainingBatch, partners: Partners, share: float, rng: np.random.Generator) -> MixedBatch:
        height, width = batch.images.shape[2:]
        box = draw_box(height, width, share, rng)
        rows, columns = slice(box.top, box.bottom), slice(box.left, box.right)
        mixed = batch.images.clone()
        mixed[:, :, rows, columns] = partners.images[:, :, rows, columns][partners.place_b]
        labels = Labels(batch.labels_b, partners.labels_r[partners.place_b], box.share_outside(height, width))
        return MixedBatch(mixed, labels)


class MinorityCutMix(CutMix):
    """CutMix whose patches come from rare classes: each from an image drawn from the whole training split.

    A class of n images is drawn with a probability that goes as 1 / n, and then one of its images.

    Args:
        labels_N: of the training split.
    """

    def __init__(self, schedule: MixSchedule, labels_N: Ints) -> None:
        super().__init__(schedule)
        self._by_class_N = np.argsort(labels_N, kind="stable")
        self._count_C = np.bincount(labels_N)
        self._first_C = np.cumsum(self._count_C) - self._count_C
        # Classes without an example are not drawn.
        weight_C = np.where(self._count_C > 0, 1 / np.maximum(self._count_C, 1), 0)
        self._probability_C = weight_C / weight_C.sum()

    def draw_partners(self, batch: Request, step: int, rng: np.random.Generator) -> Request:
        """Images of rare classes, with an augmentation of their own."""
        class_B = rng.choice(len(self._count_C), size=len(batch.rows_r), p=self._probability_C)
        within_B = (rng.random(len(class_B)) * self._count_C[class_B]).astype(np.int64)
        rows_B = self._by_class_N[self._first_C[class_B] + within_B]
        return Request(rows_B, FIRST_PATCH + step * PATCHES_PER_STEP + np.arange(len(rows_B)))
