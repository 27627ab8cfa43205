"""What a source of labelled images is, and the registry of the ones that can be asked for by name."""

# Shapes: N examples, H height, W width, C channels

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elfnet.errors import RequestError, WorkError
from elfnet.registry import Registry


@dataclass(frozen=True, eq=False)
class LabelledImages:
    """Images and their labels, as bytes: normalising belongs to the batches."""

    images_NHWC: NDArray[np.uint8]
    labels_N: NDArray[np.int64]

    def __post_init__(self) -> None:
        if self.images_NHWC.ndim != 4 or self.images_NHWC.dtype != np.uint8:
            found = f"{self.images_NHWC.dtype} of shape {self.images_NHWC.shape}"
            raise RequestError(f"images must be uint8 of shape (N, H, W, C), found {found}; convert them first")
        if self.labels_N.ndim != 1 or self.labels_N.dtype != np.int64:
            found = f"{self.labels_N.dtype} of shape {self.labels_N.shape}"
            raise RequestError(f"labels must be int64 of shape (N,), found {found}; convert them first")
        if len(self.images_NHWC) != len(self.labels_N):
            raise RequestError(
                f"{len(self.images_NHWC)} images but {len(self.labels_N)} labels; give one label an image"
            )

    def __len__(self) -> int:
        return len(self.labels_N)

    def take(self, indices: NDArray[np.int64]) -> "LabelledImages":
        """The examples at `indices`, as a copy."""
        return LabelledImages(self.images_NHWC[indices], self.labels_N[indices])

    def class_counts(self, classes: int) -> NDArray[np.int64]:
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


@dataclass(frozen=True, eq=False)
class Source:
    """A data set as published, before any split is made.

    Attributes:
        test: The data set's own test split; None if it has none and one must be cut from `train`.
        horizontal_flip: Whether a mirror image keeps its label (a cat does, a digit does not).
    """

    name: str
    class_names: tuple[str, ...]
    train: LabelledImages
    test: LabelledImages | None
    horizontal_flip: bool

    def __post_init__(self) -> None:
        if not self.class_names:
            raise RequestError(f"source {self.name!r} has no class; name at least one")
        self.train.check_labels(len(self.class_names), where=f"{self.name} train")
        if self.test is not None:
            self.test.check_labels(len(self.class_names), where=f"{self.name} test")
            if self.test.images_NHWC.shape[1:] != self.train.images_NHWC.shape[1:]:
                raise RequestError(
                    f"source {self.name!r} has training images of shape {self.train.images_NHWC.shape[1:]} and test "
                    f"images of shape {self.test.images_NHWC.shape[1:]}; bring them to one shape"
                )


SourceBuilder = Callable[[Path | None], Source]

SOURCES: Registry[SourceBuilder] = Registry("data source")
"""Builders by name. The argument is the directory the user named for data files, if any."""
