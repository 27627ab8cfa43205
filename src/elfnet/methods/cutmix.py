"""CutMix (Yun et al. 2019), and CutMix with patches of rare classes (CMO, Park et al. 2022)."""

# Shapes: N training examples, C classes, B batch of all processes, b this process's part of it, r examples to read

import math
from typing import NamedTuple

import numpy as np

from elfnet.data.loading.feed import Partners, Request, TrainingBatch
from elfnet.data.types import Ints
from elfnet.losses.base import Labels
from elfnet.methods.mixup import MixedBatch, MixSchedule, PairMixing

# Patches have random numbers of their own for augmentation: other ones than the same image has as part of the batch.
FIRST_PATCH = 1 << 40
PATCHES_PER_STEP = 1 << 20


class Box(NamedTuple):
    """A box of pixels: rows `top` to `bottom` and columns `left` to `right`, the end excluded."""

    top: int
    left: int
    bottom: int
    right: int

    def share_outside(self, height: int, width: int) -> float:
        """The fraction of the image that lies outside the box."""
        return 1 - (self.bottom - self.top) * (self.right - self.left) / (height * width)


def draw_box(height: int, width: int, share: float, rng: np.random.Generator) -> Box:
    """Draw a box around a random pixel, with the aspect ratio of the image.

    The box is clipped to the image, so the fraction outside the box may be larger than `share`.

    Args:
        share: the fraction of the image outside the box, before clipping.
    """
    scale = math.sqrt(1 - share)
    half_height, half_width = int(height * scale) // 2, int(width * scale) // 2
    y, x = int(rng.integers(height)), int(rng.integers(width))
    return Box(
        max(y - half_height, 0), max(x - half_width, 0), min(y + half_height, height), min(x + half_width, width)
    )


class CutMix(PairMixing):
    """Pastes a box of another image of the batch into each image; one box per batch.

    The share of a label is the fraction of the image that shows it.
    """

    def mix(self, batch: TrainingBatch, partners: Partners, share: float, rng: np.random.Generator) -> MixedBatch:
        """Paste the box, and share the label by the area of the box."""
        height, width = batch.images.shape[2:]
        box = draw_box(height, width, share, rng)
        rows, columns = slice(box.top, box.bottom), slice(box.left, box.right)
        mixed = batch.images.clone()
        mixed[:, :, rows, columns] = partners.images[:, :, rows, columns][partners.place_b]
        labels = Labels(batch.labels_b, partners.labels_r[partners.place_b], box.share_outside(height, width))
        return MixedBatch(mixed, labels)


class MinorityCutMix(CutMix):
    """CutMix with patches of rare classes, from images of the whole training split.

    A class with n images is drawn with a probability proportional to 1 / n, then one of its images uniformly.

    Args:
        labels_N: the labels of the training split.
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
        """Draw one image per example of the batch, mostly of rare classes."""
        class_B = rng.choice(len(self._count_C), size=len(batch.rows_r), p=self._probability_C)
        within_B = (rng.random(len(class_B)) * self._count_C[class_B]).astype(np.int64)
        rows_B = self._by_class_N[self._first_C[class_B] + within_B]
        return Request(rows_B, FIRST_PATCH + step * PATCHES_PER_STEP + np.arange(len(rows_B)))
