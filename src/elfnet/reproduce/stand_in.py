"""Telling a stand-in from the real data set, by how many images its classes have."""

from collections.abc import Mapping
from typing import Any

from elfnet.reproduce.paper_table import Column


def stand_in(column: Column, data: Mapping[str, Any]) -> str | None:
    """What a table says of data whose class counts are not those of the column's data set; None if they are.

    Args:
        data: of a record.
    """
    counts = data["class_counts"]
    pairs = [(len(counts), column.classes), (data["images"], column.images)]
    if column.largest is not None:
        pairs.append((max(counts), column.largest))
    if column.smallest is not None:
        pairs.append((min(counts), column.smallest))
    if all(found == real for found, real in pairs):
        return None
    return (
        f"{column.label}: a stand-in of {len(counts):,} classes and {data['images']:,} training images "
        f"({max(counts):,} to {min(counts):,} a class), not the data set itself, which has {column.classes:,} and "
        f"{column.images:,}"
    )
