"""What every kind of labelled examples has: images in memory, image files, feature rows.

Splitting, counting and weighting need labels only; how an example is stored is the business of its kind, and of the
batches that are made from it.
"""

# Shapes: N examples, C classes, H height, W width, K channels

from abc import ABC, abstractmethod
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from elfnet.errors import WorkError

Ints = NDArray[np.int64]


class Digest(Protocol):
    """What a fingerprint is fed into."""

    def update(self, data: bytes | memoryview, /) -> None: ...


class Examples(ABC):
    """Labelled examples, wherever they lie.

    Attributes:
        labels_N: The class of each example.
        groups_N: What an example belongs to (a patient, a burst of photographs), as a number; examples of one group
            are never split across train, calibration and test. None where there are no groups.
    """

    labels_N: Ints
    groups_N: Ints | None = None

    @property
    @abstractmethod
    def example_shape(self) -> tuple[int, int, int]:
        """(H, W, K) as the network sees it; features are images of one pixel with a channel each."""

    @abstractmethod
    def take(self, indices: Ints) -> Self:
        """The examples at `indices`."""

    @abstractmethod
    def update_fingerprint(self, digest: Digest) -> None:
        """Feed everything that tells these examples from others."""

    def __len__(self) -> int:
        return len(self.labels_N)

    def class_counts(self, classes: int) -> Ints:
        """Examples of each class, shape (classes,)."""
        return np.bincount(self.labels_N, minlength=classes).astype(np.int64)

    def check_labels(self, classes: int, *, where: str) -> None:
        """Refuse a label outside 0..classes-1, naming the first one and its place."""
        wrong_N = (self.labels_N < 0) | (self.labels_N >= classes)
        if wrong_N.any():
            position = int(wrong_N.argmax())
            label = int(self.labels_N[position])
            raise WorkError(
                f"{where}: label {label} out of range 0..{classes - 1} at position {position}; "
                "correct the labels or name every class"
            )
