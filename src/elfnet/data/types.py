"""Labelled examples, data sets and the registry of sources.

`Examples` is the base class of images in memory, image files and feature rows. Splitting, counting and weighting use
its labels only; how an example is stored is known to the subclass and to the batch sources of `elfnet.data.loading`.
"""

# Shapes: N examples, H height, W width, K (in `images_NHWC`: C) channels

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from typing_extensions import TypeVar

from elfnet.errors import RequestError, WorkError
from elfnet.registry import Registry

Ints = NDArray[np.int64]


class Digest(Protocol):
    """A hash object, such as those of hashlib."""

    def update(self, data: bytes | memoryview, /) -> None: ...


class Examples(ABC):
    """Labelled examples in memory or in files.

    Attributes:
        labels_N: Class of each example.
        groups_N: Number of the group of each example (such as a patient); a group is never divided between splits.
            None without groups.
    """

    labels_N: Ints
    groups_N: Ints | None = None

    @property
    @abstractmethod
    def example_shape(self) -> tuple[int, int, int]:
        """Shape (H, W, K) of the network's input; F features are an image of one pixel with F channels."""

    @abstractmethod
    def take(self, indices: Ints) -> Self:
        """The examples at `indices`."""

    @abstractmethod
    def update_fingerprint(self, digest: Digest) -> None:
        """Update a hash with everything that identifies these examples."""

    def __len__(self) -> int:
        return len(self.labels_N)

    def class_counts(self, classes: int) -> Ints:
        """Number of examples per class, shape (classes,)."""
        return np.bincount(self.labels_N, minlength=classes).astype(np.int64)

    def check_labels(self, classes: int, *, where: str) -> None:
        """Raise WorkError for the first label outside 0..classes-1.

        Args:
            where: Name of the split, for the message.
        """
        wrong_N = (self.labels_N < 0) | (self.labels_N >= classes)
        if wrong_N.any():
            position = int(wrong_N.argmax())
            label = int(self.labels_N[position])
            raise WorkError(
                f"{where}: label {label} out of range 0..{classes - 1} at position {position}; "
                "correct the labels or name every class"
            )


E = TypeVar("E", bound=Examples, default=Any)


@dataclass(frozen=True, eq=False)
class LabelledImages(Examples):
    """Images in memory as uint8, with their labels."""

    images_NHWC: NDArray[np.uint8]
    labels_N: Ints
    groups_N: Ints | None = None

    def __post_init__(self) -> None:
        if self.images_NHWC.ndim != 4 or self.images_NHWC.dtype != np.uint8:
            found = f"{self.images_NHWC.dtype} of shape {self.images_NHWC.shape}"
            raise RequestError(f"images must be uint8 of shape (N, H, W, C), found {found}; convert them first")
        if self.labels_N.ndim != 1 or self.labels_N.dtype != np.int64:
            found = f"{self.labels_N.dtype} of shape {self.labels_N.shape}"
            raise RequestError(f"labels must be int64 of shape (N,), found {found}; convert them first")
        if len(self.images_NHWC) != len(self.labels_N):
            raise RequestError(
                f"{len(self.images_NHWC)} images but {len(self.labels_N)} labels; give one label per image"
            )

    @property
    def example_shape(self) -> tuple[int, int, int]:
        height, width, channels = self.images_NHWC.shape[1:]
        return height, width, channels

    def take(self, indices: Ints) -> "LabelledImages":
        """The examples at `indices`, as a copy."""
        groups_N = None if self.groups_N is None else self.groups_N[indices]
        return LabelledImages(self.images_NHWC[indices], self.labels_N[indices], groups_N)

    def update_fingerprint(self, digest: Digest) -> None:
        """Shape, labels and pixels."""
        digest.update(repr(self.images_NHWC.shape).encode())
        digest.update(np.ascontiguousarray(self.labels_N, dtype="<i8").data)
        digest.update(np.ascontiguousarray(self.images_NHWC).data)


@dataclass(frozen=True, eq=False)
class Source(Generic[E]):
    """A data set as published, before any split is made.

    Attributes:
        name: Name of the data set, for messages.
        class_names: Names of the classes by label.
        train: Training examples.
        test: Test examples; None if they must be held out from `train`.
        horizontal_flip: Whether a mirror image keeps its label (a cat does, a digit does not).
        calibration: Calibration examples; None if they must be held out from `train`.
    """

    name: str
    class_names: tuple[str, ...]
    train: E
    test: E | None
    horizontal_flip: bool
    calibration: E | None = None

    def __post_init__(self) -> None:
        if not self.class_names:
            raise RequestError(f"source {self.name!r} has no class; name at least one")
        self.train.check_labels(len(self.class_names), where=f"{self.name} train")
        for split, examples in (("test", self.test), ("calibration", self.calibration)):
            if examples is None:
                continue
            examples.check_labels(len(self.class_names), where=f"{self.name} {split}")
            if examples.example_shape != self.train.example_shape:
                raise RequestError(
                    f"source {self.name!r} has training images of shape {self.train.example_shape} and {split} "
                    f"images of shape {examples.example_shape}; make the shapes equal"
                )


@dataclass(frozen=True, kw_only=True)
class SourceRequest:
    """Settings of a source: where its files are and how to read them. Each source uses some of them.

    Attributes:
        directory: Searched first for the files of a published data set.
        root: Folder of class folders, or the base directory of the paths in lists and tables.
        train, calibration, test: List, table, array file or folder of each split.
        hub: Name of a data set on the hub.
        path_column, label_column, group_column: Columns of tables; an empty group column means no groups.
        image_size: Side of the square input of the network for image files, in pixels.
        missing_files: "stop" raises if a file does not exist; "skip" leaves that to reading the image.
    """

    directory: Path | None = None
    root: Path | None = None
    train: Path | None = None
    calibration: Path | None = None
    test: Path | None = None
    hub: str = ""
    path_column: str = "path"
    label_column: str = "label"
    group_column: str = ""
    image_size: int = 224
    missing_files: str = "stop"

    def refuse_group_column(self, what: str) -> None:
        """Raise RequestError if a group column is set, for a source without columns.

        Args:
            what: Name of the data, for the message.
        """
        if self.group_column:
            raise RequestError(
                f"data.group_column={self.group_column}: {what} has no columns; use a table (elfnet train csv), "
                "or leave it out"
            )


SourceBuilder = Callable[[SourceRequest], Source]

SOURCES: Registry[SourceBuilder] = Registry("data source")
"""Functions that read a data set, by name."""
