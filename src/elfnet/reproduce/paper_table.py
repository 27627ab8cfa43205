"""Tables as data: columns, rows, published numbers, tiers, and the operating points that a table shows.

The numbers are in `tables/*.toml`. `table1`, `table2` and `table3` are the paper's. `strong` compares recipes of modern
training with published networks of known width.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from elfnet.parsing import parse_toml
from elfnet.registry import unknown_name

PAPER_TABLES = ("table1", "table2", "table3")
TABLES = (*PAPER_TABLES, "strong")

# Operating points by the names that `calibrate` gives them; all are chosen on the calibration split.
FULL_DEPTH = "full"
PAPER_RULE = "accurate"
"""One threshold for all exits, the most accurate: the paper's rule. The paper's number is compared with this point. For
a network without early exits it equals full depth."""
UNTUNED = "untuned"
"""The result with nothing chosen on the calibration split: tau = 1, and the largest candidate for s."""
SHOWN_POINTS = (FULL_DEPTH, PAPER_RULE, "economic", "within-1")
"""`economic`: one threshold for all exits, the cheapest that loses at most one point of accuracy. `within-1`: the same
with one threshold per exit."""
BUDGET_POINTS = tuple(f"budget={budget:g}" for budget in (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1))
"""One threshold per exit, the most accurate within a mean cost."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PaperCell(_Part):
    """Published top-1 accuracy of one row and column, in %.

    Attributes:
        flops: change of the multiply-adds on the test set relative to the table's baseline row, in %.
        width: channels of the network's first group, in tables that compare networks of several widths.
        printed: the number that the paper prints instead of `all`, if that is a misprint.
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
        method: the part of the recipe's name after the slash; None if the row has only published numbers.
        settings: recipe settings by dotted name, if the row is a variant of its method.
        starts_from: the row whose finished run this row starts from.
        epochs_factor: length of the training relative to other rows.
        quoted: whether the paper takes the numbers from another paper.
        paper: published numbers by column; empty for a row of ours.
        tables: the tables that an extra row belongs to.
    """

    name: str
    label: str
    method: str | None = None
    settings: Mapping[str, Any] = {}
    starts_from: str | None = None
    epochs_factor: int = 1
    quoted: bool = False
    paper: Mapping[str, PaperCell] = {}
    tables: tuple[str, ...] = PAPER_TABLES

    @property
    def in_paper(self) -> bool:
        """Whether there are published numbers for this row."""
        return bool(self.paper)


class Column(_Part):
    """A data set, with its imbalance or backbone where columns differ in those.

    Attributes:
        data: the part of the recipe's name before the slash.
        settings: recipe settings by dotted name.
        classes, images, largest, smallest: number of classes and training images, and sizes of the largest and the
            smallest class of the real data set, to recognise a stand-in. Images that are held out for calibration are
            included if nothing else is removed.
        images_ldam_drw: training images under data.protocol=ldam-drw, which holds nothing out.
    """

    name: str
    label: str
    data: str
    settings: Mapping[str, Any] = {}
    classes: int
    images: int
    largest: int | None = None
    smallest: int | None = None
    images_ldam_drw: int | None = None


class Pair(_Part):
    """Two rows to compare, by name; differences are `row` minus `against`."""

    row: str
    against: str


class PaperTable(_Part):
    """A table: rows with published numbers, then our own rows.

    Attributes:
        baseline: the row whose network all costs are relative to.
        source: heading of the published numbers.
    """

    name: str
    title: str
    baseline: str = "ce"
    source: str = "paper"
    columns: Annotated[tuple[Column, ...], Field(min_length=1)]
    rows: Annotated[tuple[Row, ...], Field(min_length=1)]
    pairs: tuple[Pair, ...]

    def row(self, name: str) -> Row:
        return _by_name("row", name, self.rows)

    def column(self, name: str) -> Column:
        return _by_name("column", name, self.columns)

    @property
    def has_groups(self) -> bool:
        """Whether accuracies of frequent and rare classes were published."""
        return any(cell.many is not None for row in self.rows for cell in row.paper.values())


@dataclass(frozen=True, kw_only=True)
class Tier:
    """Length and data of a table's runs.

    Attributes:
        epochs: length of a row with `epochs_factor` 1; None: the recipe's own length.
        data: replaces the data of every column; None: each column's own data.
        max_ratio: largest imbalance ratio of the replacing data, which may have too few images for the column's ratio.
        settings: recipe settings by dotted name.
        text: note in tables of this tier; may be empty.
    """

    name: str
    epochs: int | None = None
    data: str | None = None
    max_ratio: float = 20
    settings: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""


TIERS = {
    tier.name: tier
    for tier in (
        Tier(
            name="smoke",
            epochs=5,
            data="digits",
            settings={"train.evaluate_every": 5},
            text="handwritten digits and a small network instead of the column's own, 5 epochs; this tests that "
            "everything runs and does not compare the methods",
        ),
        Tier(name="short", epochs=40, text="40 epochs instead of the paper's number, with the schedule scaled to them"),
        Tier(name="medium", epochs=100, text="100 epochs, with the schedule scaled to them"),
        Tier(name="paper"),
    )
}


def get_tier(name: str) -> Tier:
    """Return a tier by name, one of `TIERS`."""
    if name not in TIERS:
        raise unknown_name("tier", name, list(TIERS))
    return TIERS[name]


@cache
def load_table(name: str) -> PaperTable:
    """Load a table by name, one of `TABLES`."""
    if name not in TABLES:
        raise unknown_name("table", name, list(TABLES))
    content = _read(name)
    own = [Row.model_validate(row) for row in content.pop("rows")]
    extra = [Row.model_validate(row) for row in _read("extra_rows")["rows"]]
    own_names = {row.name for row in own}
    rows = [*own, *(row for row in extra if row.name not in own_names and name in row.tables)]
    names = {row.name for row in rows}
    pairs = [Pair.model_validate(pair) for pair in _read("pairs")["pairs"]]
    pairs = [pair for pair in pairs if {pair.row, pair.against} <= names]
    return PaperTable(name=name, rows=tuple(rows), pairs=tuple(pairs), **content)


RowOrColumn = TypeVar("RowOrColumn", Row, Column)


def _by_name(kind: str, name: str, choices: tuple[RowOrColumn, ...]) -> RowOrColumn:
    for choice in choices:
        if choice.name == name:
            return choice
    raise unknown_name(kind, name, [choice.name for choice in choices])


def _read(name: str) -> dict[str, Any]:
    file = resources.files("elfnet.reproduce") / "tables" / f"{name}.toml"
    return parse_toml(file.read_text(encoding="utf-8"))
