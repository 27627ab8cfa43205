"""Columns of Parquet files, where pyarrow is installed."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from elfnet.errors import RequestError, WorkError


def read_columns(file: Path, wanted: Mapping[str, str]) -> list[list[Any]]:
    """The values of each column of `wanted` (column name to the setting that names it)."""
    parquet = _pyarrow_parquet(file)
    try:
        there = list(parquet.read_schema(file).names)
        for column, setting in wanted.items():
            if column not in there:
                raise missing_column(file, column, setting, there)
        table = parquet.read_table(file, columns=list(wanted))
        columns = [table.column(column).to_pylist() for column in wanted]
    except (OSError, ValueError) as error:
        # pyarrow's own errors derive from these two.
        if isinstance(error, RequestError):
            raise
        raise WorkError(f"cannot read {file}: {str(error).splitlines()[0]}; check that it is a Parquet file") from error
    for column, values in zip(wanted, columns, strict=True):
        if any(value is None for value in values):
            raise WorkError(f"row {values.index(None)} of {file} has no {column}; fill it in, or remove the row")
    return columns


def missing_column(file: Path | str, column: str, setting: str, there: Sequence[str]) -> RequestError:
    shown = ", ".join(there[:12]) + (" ..." if len(there) > 12 else "")
    return RequestError(f"{file} has no column {column!r}; it has: {shown}; name the right one with {setting}")


def column_names(file: Path) -> list[str]:
    """Names of the columns, in order."""
    try:
        return list(_pyarrow_parquet(file).read_schema(file).names)
    except (OSError, ValueError) as error:
        raise WorkError(f"cannot read {file}: {str(error).splitlines()[0]}; check that it is a Parquet file") from error


def _pyarrow_parquet(file: Path) -> Any:
    try:
        return import_module("pyarrow.parquet")
    except ImportError:
        raise RequestError(
            f"{file} is Parquet, which needs pyarrow: pip install pyarrow, or save it as CSV or npz"
        ) from None
