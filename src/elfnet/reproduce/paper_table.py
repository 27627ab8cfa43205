"""A table as data: its columns, its rows, the numbers that were published, and rows that are ours alone.

Three tables are the paper's. `strong` has the recipes of modern training beside published networks of known width.
"""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from elfnet.registry import unknown_name

PAPER_TABLES = ("table1", "table2", "table3")
TABLES = (*PAPER_TABLES, "strong")


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PaperCell(_Part):
    """What was published for one row and column: top-1 accuracy in %.

    Attributes:
        flops: change of the multiply-adds over the test set against the table's plain row, in %.
        width: channels of the network's first group, where networks of several widths are compared.
        printed: what stands in the paper instead of `all`, where that is a misprint.
    """

    all: float
    many: float | None = None
    medium: float | None = None
    few: float | None = None
    flops: float
    width: int | None = None
    printed: float | None = None

    @property
    def cost(self) -> float:
        """Multiply-adds relative to the plain backbone."""
        return 1 + self.flops / 100


class Row(_Part):
    """A system.

    Attributes:
        method: the second half of its recipe's name; None: the row only has published numbers.
        settings: of the recipe, by dotted name, where the row is a variant of its method.
        starts_from: the row whose finished run it starts from.
        times_epochs: trained so many times as long as the others.
        quoted: the paper takes the numbers from another paper.
        paper: published numbers by column; empty for a row of ours.
        tables: tables that an extra row is for.
    """

    name: str
    label: str
    method: str | None = None
    settings: Mapping[str, Any] = {}
    starts_from: str | None = None
    times_epochs: int = 1
    quoted: bool = False
    paper: Mapping[str, PaperCell] = {}
    tables: tuple[str, ...] = PAPER_TABLES

    @property
    def in_paper(self) -> bool:
        return bool(self.paper)


class Column(_Part):
    """A data set, and a backbone where it is not the data set's own.

    Attributes:
        data: the first half of the recipe's name.
        settings: of the recipe, by dotted name.
        classes, images, largest, smallest: of the real training data, to tell a stand-in from it; images that are
            held out for calibration count where nothing else is taken away.
    """

    name: str
    label: str
    data: str
    settings: Mapping[str, Any] = {}
    classes: int
    images: int
    largest: int | None = None
    smallest: int | None = None


class Pair(_Part):
    """Two rows to compare with each other, by name: `row` minus `against`."""

    row: str
    against: str


class PaperTable(_Part):
    """A table: rows with published numbers, then our own.

    Attributes:
        baseline: the plain row, whose network all costs are relative to.
        source: what published numbers are called in a heading.
    """

    name: str
    title: str
    baseline: str = "ce"
    source: str = "paper"
    columns: Annotated[tuple[Column, ...], Field(min_length=1)]
    rows: Annotated[tuple[Row, ...], Field(min_length=1)]
    pairs: tuple[Pair, ...]

    def row(self, name: str) -> Row:
        return _named("row", name, self.rows)

    def column(self, name: str) -> Column:
        return _named("column", name, self.columns)

    @property
    def has_groups(self) -> bool:
        """Whether accuracies of frequent and rare classes were published."""
        return any(cell.many is not None for row in self.rows for cell in row.paper.values())


Named = TypeVar("Named", Row, Column)


@cache
def load_table(name: str) -> PaperTable:
    """A table by name, one of `TABLES`."""
    if name not in TABLES:
        raise unknown_name("table", name, list(TABLES))
    content = _read(name)
    own = [Row.model_validate(row) for row in content.pop("rows")]
    extra = [Row.model_validate(row) for row in _read("extra_rows")["rows"]]
    taken = {row.name for row in own}
    rows = [*own, *(row for row in extra if row.name not in taken and name in row.tables)]
    names = {row.name for row in rows}
    pairs = [Pair.model_validate(pair) for pair in _read("pairs")["pairs"]]
    pairs = [pair for pair in pairs if {pair.row, pair.against} <= names]
    return PaperTable(name=name, rows=tuple(rows), pairs=tuple(pairs), **content)


def _named(kind: str, name: str, choices: tuple[Named, ...]) -> Named:
    for one in choices:
        if one.name == name:
            return one
    raise unknown_name(kind, name, [one.name for one in choices])


def _read(name: str) -> dict[str, Any]:
    file = resources.files("elfnet.reproduce") / "tables" / f"{name}.toml"
    return tomllib.loads(file.read_text(encoding="utf-8"))
