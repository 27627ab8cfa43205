"""CSV, TSV and Parquet tables with columns of image paths, labels and, optionally, groups."""

# Shapes: N rows

import csv
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from elfnet.data.images.files import PathTable
from elfnet.data.sources.file_listing import Listing
from elfnet.errors import RequestError, WorkError

SPLIT_COLUMNS = ("split", "set", "subset", "fold", "partition")
"""Names of columns that usually say which split a row belongs to."""


def read_parquet_columns(file: Path, wanted: Mapping[str, str]) -> list[list[Any]]:
    """Read columns of a Parquet file; a missing column or value is an error.

    Args:
        wanted: Names of the columns, each with the setting that names it, for messages.
    """
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
            raise WorkError(f"row {values.index(None)} of {file} has no {column}; add it, or remove the row")
    return columns


def missing_column(file: Path | str, column: str, setting: str, there: Sequence[str]) -> RequestError:
    """The error for a column that a file does not have."""
    # A quote that is not closed makes a name of several lines.
    names = [name if name.isprintable() else repr(name)[:80] for name in there[:12]]
    shown = ", ".join(names) + (" ..." if len(there) > 12 else "")
    return RequestError(f"{file} has no column {column!r}; it has: {shown}; name the right one with {setting}")


def parquet_column_names(file: Path) -> list[str]:
    """Names of the columns of a Parquet file, in order."""
    try:
        return list(_pyarrow_parquet(file).read_schema(file).names)
    except (OSError, ValueError) as error:
        raise WorkError(f"cannot read {file}: {str(error).splitlines()[0]}; check that it is a Parquet file") from error


def split_column(file: Path) -> str | None:
    """Name of a column of a table that seems to say which split a row belongs to; None if there is none."""
    if file.suffix.lower() == ".parquet":
        names = parquet_column_names(file)
    else:
        with file.open(newline="", encoding="utf-8-sig") as text:
            names = next(filter(None, csv.reader(text, delimiter=_delimiter(file))), [])
    return next((name for name in names if name.strip().lower() in SPLIT_COLUMNS), None)


def _delimiter(file: Path) -> str:
    return "\t" if file.suffix.lower() == ".tsv" else ","


def _pyarrow_parquet(file: Path) -> Any:
    try:
        return import_module("pyarrow.parquet")
    except ImportError:
        raise RequestError(
            f"{file} is Parquet, which needs pyarrow: pip install pyarrow, or save it as CSV or npz"
        ) from None


def read_table(file: Path, root: Path, *, path_column: str, label_column: str, group_column: str = "") -> Listing:
    """Read a .csv, .tsv or .parquet table.

    Labels are class names. They are sorted and numbered: by value if all are integers, which may have gaps, else by
    name.
    """
    wanted = [path_column, label_column, *([group_column] if group_column else [])]
    settings = ["data.path_column", "data.label_column", "data.group_column"]
    if file.suffix.lower() == ".parquet":
        columns = [
            list(map(str, column)) for column in read_parquet_columns(file, dict(zip(wanted, settings, strict=False)))
        ]
    else:
        columns = _csv_columns(file, wanted, settings)
    paths, labels = PathTable.of(columns[0]), columns[1]
    # CSV lines are checked while they are read, so this is a row of a Parquet file.
    if (row := paths.first_with_nul()) is not None:
        raise WorkError(f"row {row} of {file} has a NUL byte in {path_column}: {paths[row][:80]!r}; correct the path")
    names = sorted_class_names(set(labels))
    number = {name: label for label, name in enumerate(names)}
    return Listing(
        origin=str(file),
        root=root,
        paths=paths,
        labels_N=np.array([number[label] for label in labels], dtype=np.int64),
        label_names=tuple(names),
        groups=tuple(columns[2]) if group_column else None,
    )


def sorted_class_names(names: set[str]) -> list[str]:
    """Sort class names: by value if all are integers (2 before 10), else by name."""
    by_name = sorted(names)  # defines the order of 1 and 01
    return sorted(by_name, key=int) if all(name.isdecimal() for name in names) else by_name


def _csv_columns(file: Path, wanted: list[str], settings: list[str]) -> list[list[str]]:
    columns: list[list[str]] = [[] for _ in wanted]
    try:
        # utf-8-sig: spreadsheets write a byte order mark, which would become part of the first column's name.
        with file.open(newline="", encoding="utf-8-sig") as text:
            rows = csv.reader(text, delimiter=_delimiter(file))
            header = next(filter(None, rows), [])
            if not header:
                raise WorkError(f"{file} is empty; it needs a line with column names, and one line per image")
            if len(header) == 1 and ";" in header[0]:
                raise WorkError(f"{file} separates columns by semicolons; save it with commas, or as .tsv with tabs")
            places = []
            for column, setting in zip(wanted, settings, strict=False):
                if column not in header:
                    raise missing_column(file, column, setting, header)
                places.append(header.index(column))
            for row in rows:
                if not row:
                    continue
                for values, place in zip(columns, places, strict=True):
                    if place >= len(row) or not row[place].strip():
                        name = header[place]
                        raise WorkError(
                            f"line {rows.line_num} of {file} has no {name}: {','.join(row)[:80]!r}; add it, or "
                            "remove the line"
                        )
                    if "\0" in row[place]:
                        raise WorkError(
                            f"line {rows.line_num} of {file} has a NUL byte in {header[place]}: {row[place][:80]!r}; "
                            "correct it, or remove the line"
                        )
                    values.append(row[place].strip())
    except OSError as error:
        raise WorkError(f"cannot read table {file}: {error.strerror or error}; check the path") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise WorkError(f"{file} is not a text table ({error}); save it as CSV in UTF-8") from error
    return columns
