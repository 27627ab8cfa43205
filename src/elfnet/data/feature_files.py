"""Reading feature arrays from npz and Parquet files; nothing in them is executed."""

# Shapes: N rows, F features

import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray

from elfnet.data.parquet import column_names, missing_column, read_columns
from elfnet.errors import ElfnetError, RequestError, WorkError


@dataclass(frozen=True, eq=False)
class FeatureArrays:
    """A file's content: features, labels as text, and groups as text if asked for."""

    origin: str
    features_NF: NDArray[np.float32]
    labels: list[str]
    groups: list[str] | None


def read_features(file: Path, *, label_column: str, group_column: str) -> FeatureArrays:
    """Read by ending: .npz (arrays `X`, `y` and, if a group column is named, one of that name) or .parquet.

    In a Parquet file every column that is neither label nor group is a feature.
    """
    if file.suffix.lower() == ".parquet":
        features, labels, groups = _from_parquet(file, label_column, group_column)
    elif file.suffix.lower() == ".npz":
        features, labels, groups = _from_npz(file, group_column)
    else:
        raise RequestError(f"{file} is neither .npz nor .parquet; save the features as one of them")
    for name, column in (("labels", labels), ("groups", groups)):
        if column is not None and len(column) != len(features):
            raise WorkError(f"{file} has {len(features)} rows of features but {len(column)} {name}; make them as many")
    finite_N = np.isfinite(features).all(axis=1)
    if not finite_N.all():
        raise WorkError(f"row {int((~finite_N).argmax())} of {file} has a value that is not finite; fill it in first")
    return FeatureArrays(
        str(file), features, list(map(str, labels)), None if groups is None else list(map(str, groups))
    )


def _from_npz(file: Path, group_column: str) -> tuple[NDArray[np.float32], list[Any], list[Any] | None]:
    try:
        # Opened here: NumPy would leave a broken file open.
        with file.open("rb") as content:
            arrays = np.load(content, allow_pickle=False)
            if not isinstance(arrays, NpzFile):
                raise ValueError("it holds one array without a name")
            wanted = ["X", "y", *([group_column] if group_column else [])]
            for name in wanted:
                if name not in arrays:
                    raise RequestError(
                        f"{file} has no array {name!r}; it has: {', '.join(arrays)}; save it under {name}"
                    )
            found = [np.asarray(arrays[name]) for name in wanted]
    except ElfnetError:
        raise
    except (OSError, ValueError, RuntimeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        # RuntimeError: encrypted, or packed in a way that is not read (NotImplementedError).
        raise WorkError(f"cannot read {file}: {error}; it must be an .npz file of plain arrays") from error
    features, labels = found[0], found[1]
    if features.ndim != 2 or features.dtype.kind not in "fiub" or not features.shape[1]:
        raise WorkError(
            f"X in {file} is {features.dtype} of shape {features.shape}; it must be numbers of shape (N, F)"
        )
    if labels.ndim != 1 or labels.dtype.kind not in "iuUS":
        raise WorkError(
            f"y in {file} is {labels.dtype} of shape {labels.shape}; it must be whole numbers or text, (N,)"
        )
    text = labels.astype(str).tolist()
    return features.astype(np.float32), text, found[2].astype(str).tolist() if group_column else None


def _from_parquet(
    file: Path, label_column: str, group_column: str
) -> tuple[NDArray[np.float32], list[Any], list[Any] | None]:
    there = column_names(file)
    named = {"data.label_column": label_column, "data.group_column": group_column}
    for setting, column in named.items():
        if column and column not in there:
            raise missing_column(file, column, setting, there)
    features = [column for column in there if column not in named.values()]
    if not features:
        raise WorkError(f"{file} has no column besides label and group; features are the other columns")
    columns = read_columns(file, dict.fromkeys([*features, *filter(None, named.values())], "the file"))
    try:
        rows = np.array(columns[: len(features)], dtype=np.float32).T
    except (TypeError, ValueError) as error:
        raise WorkError(f"{file} has a feature column that is not numbers ({error}); leave it out") from error
    rest = columns[len(features) :]
    return np.ascontiguousarray(rows), rest[0], rest[1] if group_column else None
