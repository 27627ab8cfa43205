"""Arrays in files, with one label per example: rows of features (.npz or Parquet), and images of equal size (.npz)."""

# Shapes: N rows or images, F features, H height, W width, K channels

import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray

from elfnet.data.sources.file_listing import number_groups, refuse_one_class
from elfnet.data.sources.tables import missing_column, parquet_column_names, read_parquet_columns, sorted_class_names
from elfnet.data.types import SOURCES, Digest, Examples, Ints, LabelledImages, Source, SourceRequest
from elfnet.errors import ElfnetError, RequestError, WorkError


@dataclass(frozen=True, eq=False)
class FeatureArrays:
    """The content of a file: features, labels as text, and groups as text if there is a group column."""

    origin: str
    features_NF: NDArray[np.float32]
    labels: list[str]
    groups: list[str] | None


def read_features(file: Path, *, label_column: str, group_column: str) -> FeatureArrays:
    """Read features, labels and groups from an .npz or .parquet file.

    An .npz file has arrays `X` and `y`, and one with the name of the group column. In a Parquet file every column other
    than label and group is a feature.

    Args:
        group_column: Name of the groups; empty without groups.
    """
    if file.suffix.lower() == ".parquet":
        features, labels, groups = _from_parquet(file, label_column, group_column)
    elif file.suffix.lower() == ".npz":
        features, labels, groups = _from_npz(file, group_column)
    else:
        raise RequestError(f"{file} is neither .npz nor .parquet; save the features as one of them")
    for name, column in (("labels", labels), ("groups", groups)):
        if column is not None and len(column) != len(features):
            raise WorkError(
                f"{file} has {len(features)} rows of features but {len(column)} {name}; make the numbers equal"
            )
    finite_N = np.isfinite(features).all(axis=1)
    if not finite_N.all():
        raise WorkError(f"row {int((~finite_N).argmax())} of {file} has a value that is not finite; replace it")
    return FeatureArrays(
        str(file), features, list(map(str, labels)), None if groups is None else list(map(str, groups))
    )


def read_arrays(file: Path, names: Sequence[str]) -> list[NDArray[Any]]:
    """Read arrays by name from an .npz file; nothing in it is executed."""
    try:
        # Opened here because NumPy would not close a damaged file.
        with file.open("rb") as content:
            arrays = np.load(content, allow_pickle=False)
            if not isinstance(arrays, NpzFile):
                raise ValueError("it contains a single array without a name")
            for name in names:
                if name not in arrays:
                    raise RequestError(
                        f"{file} has no array {name!r}; it has: {', '.join(arrays)}; save the array as {name}"
                    )
            return [np.asarray(arrays[name]) for name in names]
    except ElfnetError:
        raise
    except (OSError, ValueError, RuntimeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        # RuntimeError: encrypted, or compressed by an unsupported method (NotImplementedError).
        # NumPy takes any file that it does not know for a pickle, and advises to load it unsafely.
        reason = "it holds no arrays, or Python objects" if "pickle" in str(error) else error
        raise WorkError(f"cannot read {file}: {reason}; it must be an .npz file of plain arrays") from error


def label_texts(labels: NDArray[Any], file: Path) -> list[str]:
    """The array `y` of a file as text; WorkError if it has neither integers nor text, or another shape than (N,)."""
    if labels.ndim != 1 or labels.dtype.kind not in "iuUS":
        raise WorkError(
            f"y in {file} is {labels.dtype} of shape {labels.shape}; it must have integers or text, and shape (N,)"
        )
    return list(map(str, labels.astype(str).tolist()))


def _from_npz(file: Path, group_column: str) -> tuple[NDArray[np.float32], list[Any], list[Any] | None]:
    found = read_arrays(file, ["X", "y", *([group_column] if group_column else [])])
    features, labels = found[0], found[1]
    if features.ndim != 2 or features.dtype.kind not in "fiub" or not features.shape[1]:
        raise WorkError(
            f"X in {file} is {features.dtype} of shape {features.shape}; it must have numbers and shape (N, F)"
        )
    text = label_texts(labels, file)
    return features.astype(np.float32), text, found[2].astype(str).tolist() if group_column else None


def _from_parquet(
    file: Path, label_column: str, group_column: str
) -> tuple[NDArray[np.float32], list[Any], list[Any] | None]:
    there = parquet_column_names(file)
    named = {"data.label_column": label_column, "data.group_column": group_column}
    for setting, column in named.items():
        if column and column not in there:
            raise missing_column(file, column, setting, there)
    features = [column for column in there if column not in named.values()]
    if not features:
        raise WorkError(f"{file} has no column other than label and group; add feature columns")
    columns = read_parquet_columns(file, dict.fromkeys([*features, *filter(None, named.values())], "the file"))
    try:
        rows = np.array(columns[: len(features)], dtype=np.float32).T
    except (TypeError, ValueError) as error:
        raise WorkError(f"{file} has a feature column without numbers ({error}); remove it") from error
    rest = columns[len(features) :]
    return np.ascontiguousarray(rows), rest[0], rest[1] if group_column else None


@dataclass(frozen=True, eq=False)
class FeatureRows(Examples):
    """Feature rows in memory, for the backbone `mlp`.

    The network's input is an image of one pixel with F channels, so that everything for images works with features.
    """

    features_NF: NDArray[np.float32]
    labels_N: Ints
    groups_N: Ints | None = None

    @property
    def example_shape(self) -> tuple[int, int, int]:
        return 1, 1, self.features_NF.shape[1]

    def take(self, indices: Ints) -> "FeatureRows":
        groups_N = None if self.groups_N is None else self.groups_N[indices]
        return FeatureRows(self.features_NF[indices], self.labels_N[indices], groups_N)

    def update_fingerprint(self, digest: Digest) -> None:
        digest.update(f"features {self.features_NF.shape}".encode())
        digest.update(np.ascontiguousarray(self.labels_N, dtype="<i8").data)
        digest.update(np.ascontiguousarray(self.features_NF).data)


@SOURCES.register("features")
def features(request: SourceRequest) -> Source[FeatureRows]:
    """Feature arrays in memory: .npz with arrays X and y, or .parquet with a label column (data.train, data.test)."""
    if request.train is None:
        raise RequestError("source=features needs data.train: an .npz file with arrays X and y, or a .parquet file")
    files = {"train": request.train, "calibration": request.calibration, "test": request.test}
    read = {
        split: read_features(file, label_column=request.label_column, group_column=request.group_column)
        for split, file in files.items()
        if file is not None
    }
    train = read["train"]
    if not len(train.labels):
        raise WorkError(f"{train.origin} has no row; check the file, or name another one")
    names = sorted_class_names(set(train.labels))
    refuse_one_class(names, train.origin)
    groups = number_groups({split: arrays.groups for split, arrays in read.items()})
    parts = {split: _rows(arrays, train, names, groups[split]) for split, arrays in read.items()}
    return Source(
        name=Path(train.origin).stem,
        class_names=tuple(names),
        train=parts["train"],
        test=parts.get("test"),
        horizontal_flip=False,
        calibration=parts.get("calibration"),
    )


def _rows(arrays: FeatureArrays, train: FeatureArrays, names: list[str], groups_N: Ints | None) -> FeatureRows:
    width, expected = arrays.features_NF.shape[1], train.features_NF.shape[1]
    if width != expected:
        raise WorkError(
            f"{arrays.origin} has {width} features, but {train.origin} has {expected}; make the numbers equal"
        )
    number = {name: label for label, name in enumerate(names)}
    for row, label in enumerate(arrays.labels):
        if label not in number:
            raise WorkError(
                f"row {row} of {arrays.origin} has class {label!r}, which {train.origin} does not have; "
                "remove it, or add training rows of it"
            )
    labels_N = np.array([number[label] for label in arrays.labels], dtype=np.int64)
    return FeatureRows(arrays.features_NF, labels_N, groups_N)


@SOURCES.register("arrays")
def arrays(request: SourceRequest) -> Source[LabelledImages]:
    """Images in memory: .npz with X, uint8 (N, H, W) or (N, H, W, 3), and y (data.train, data.test)."""
    request.refuse_group_column("an array of images")
    if request.train is None:
        raise RequestError("source=arrays needs data.train: an .npz file with arrays X (uint8 images) and y")
    files = {"train": request.train, "calibration": request.calibration, "test": request.test}
    read = {split: _read_images(file) for split, file in files.items() if file is not None}
    names = sorted_class_names(set(read["train"][1]))
    refuse_one_class(names, str(request.train))
    number = {name: label for label, name in enumerate(names)}
    parts = {}
    for split, (images_NHWK, labels) in read.items():
        unknown = next((label for label in labels if label not in number), None)
        if unknown is not None:
            raise WorkError(f"{files[split]} has the class {unknown!r}, which {request.train} does not have; remove it")
        parts[split] = LabelledImages(images_NHWK, np.array([number[label] for label in labels], dtype=np.int64))
    # Colour images are photographs as a rule; grey ones are often characters, which a mirror changes.
    colour = parts["train"].example_shape[-1] == 3
    return Source(
        name=Path(request.train).stem,
        class_names=tuple(names),
        train=parts["train"],
        test=parts.get("test"),
        horizontal_flip=colour,
        calibration=parts.get("calibration"),
    )


def _read_images(file: Path) -> tuple[np.ndarray[tuple[int, ...], np.dtype[np.uint8]], list[str]]:
    images, labels = read_arrays(file, ["X", "y"])
    images = images[..., None] if images.ndim == 3 else images
    if images.ndim != 4 or images.dtype != np.uint8 or images.shape[-1] not in (1, 3) or 0 in images.shape:
        raise WorkError(
            f"X in {file} is {images.dtype} of shape {images.shape}; it must be uint8 of shape (N, H, W), (N, H, W, 1) "
            "or (N, H, W, 3), with values from 0 to 255"
        )
    texts = label_texts(labels, file)
    if len(texts) != len(images):
        raise WorkError(f"{file} has {len(images)} images but {len(texts)} labels; make the numbers equal")
    return images, texts
