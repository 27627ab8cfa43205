"""Feature arrays: rows of numbers with a label each, such as counts of codes in health records."""

# Shapes: N rows, F features, C classes

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elfnet.data.examples import Digest, Examples, Ints
from elfnet.data.feature_files import FeatureArrays, read_features
from elfnet.data.listed_images import number_groups
from elfnet.data.listing import refuse_one_class
from elfnet.data.source import SOURCES, Source, SourceRequest
from elfnet.data.table_listing import in_order
from elfnet.errors import RequestError, WorkError


@dataclass(frozen=True, eq=False)
class FeatureRows(Examples):
    """Rows in memory. A network sees each as an image of one pixel with F channels, so that all that works on images
    works on them (with the backbone `mlp`)."""

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
        raise WorkError(f"{train.origin} has no row; check it, or name another")
    names = in_order(set(train.labels))
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
        raise WorkError(f"{arrays.origin} has {width} features, {train.origin} has {expected}; make them the same")
    number = {name: label for label, name in enumerate(names)}
    for row, label in enumerate(arrays.labels):
        if label not in number:
            raise WorkError(
                f"row {row} of {arrays.origin} has class {label!r}, which {train.origin} does not have; "
                "remove it, or add training rows of it"
            )
    labels_N = np.array([number[label] for label in arrays.labels], dtype=np.int64)
    return FeatureRows(arrays.features_NF, labels_N, groups_N)
