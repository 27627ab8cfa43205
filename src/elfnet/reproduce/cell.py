"""The cells of a table: which of them are requested, and the recipe of each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from elfnet.errors import RequestError
from elfnet.methods.refit.build import TRAINED, is_second_stage
from elfnet.recipe.load import load_recipe
from elfnet.recipe.schema import Recipe
from elfnet.recipe.stages import DEFAULT_REFIT_EPOCHS
from elfnet.registry import unknown_name
from elfnet.reproduce.paper_table import Column, PaperTable, Row, Tier

BASE_METHOD = "ce"
"""The method whose recipe defines the standard length of a data set's runs."""

TABLE_SETTINGS = {
    "train.seed": "use --seeds",
    "refit.run": "rows that start from another run find it themselves",
    "train.schedule_epochs": "the schedule belongs to the recipe; use --tier or --train.epochs",
}
"""Settings that the table decides, and what to do instead of setting them."""

PAPER, EXTRA = "paper", "extra"
"""Names that select all rows with published numbers, and all rows without."""


@dataclass(frozen=True)
class Cell:
    """One run of a table: a row, a column and a seed."""

    row: Row
    column: Column
    seed: int

    @property
    def name(self) -> str:
        """Path of the run relative to the table's directory."""
        return f"{self.column.name}/{self.row.name}/seed{self.seed}"


def select_cells(
    table: PaperTable, *, rows: Sequence[str] = (), columns: Sequence[str] = (), seeds: Sequence[int] = (0,)
) -> list[Cell]:
    """Select cells in the order in which they are run, including those that other cells start from.

    All columns are run with the first seed before any is run with the second, and a column is finished before the next
    one starts. An unfinished table then has few seeds in many rows rather than many seeds in few rows.

    Args:
        rows, columns: names; empty: all.
    """
    selected_rows, selected_columns = select_rows(table, rows), select_columns(table, columns)
    cells: dict[str, Cell] = {}
    for seed in _checked_seeds(seeds):
        for column in selected_columns:
            for row in selected_rows:
                source = [table.row(row.starts_from)] if row.starts_from else []
                for needed in (*source, row):
                    cell = Cell(needed, column, seed)
                    cells.setdefault(cell.name, cell)
    return list(cells.values())


def select_rows(table: PaperTable, names: Sequence[str]) -> list[Row]:
    """Select rows that can be run, in the order of the table; rows with only published numbers cannot."""
    runnable = [row for row in table.rows if row.method is not None]
    choices = [*(row.name for row in runnable), PAPER, EXTRA]
    for name in names:
        if name not in choices:
            raise unknown_name(f"row of {table.name}", name, choices)
    return [row for row in runnable if not names or row.name in names or (PAPER if row.in_paper else EXTRA) in names]


def select_columns(table: PaperTable, names: Sequence[str]) -> list[Column]:
    """Select columns, in the order of the table."""
    choices = [column.name for column in table.columns]
    for name in names:
        if name not in choices:
            raise unknown_name(f"column of {table.name}", name, choices)
    return [column for column in table.columns if not names or column.name in names]


def check_settings(settings: Mapping[str, Any]) -> None:
    """Refuse settings that the table decides.

    Raises:
        RequestError: one of `TABLE_SETTINGS` is set.
    """
    for name, way_out in TABLE_SETTINGS.items():
        if name in settings:
            raise RequestError(f"--{name} cannot be set for a whole table; {way_out}")


def cell_recipe(cell: Cell, tier: Tier, settings: Mapping[str, Any], *, starts_from: str = "") -> Recipe:
    """Return the recipe of a cell.

    The tier scales the length of most rows. Classifiers trained on fixed features (cRT, LWS, a second stage) keep the
    length of their recipe, or take the tier's if that is shorter: the epochs they need do not depend on how long the
    features were trained. (On features of a briefly trained CIFAR-10-LT network, cRT was 2.8 and LWS 1.8 points worse
    after 4 epochs than after 20.)

    Args:
        settings: settings for all rows by dotted name; `train.epochs` replaces the tier's epochs.
        starts_from: the run directory that the row starts from.
    """
    check_settings(settings)
    data = tier.data or cell.column.data
    name = f"{data}/{cell.row.method}"
    length = _parse_epochs(settings.get("train.epochs")) or tier.epochs
    overrides = {**_column_settings(cell.column, tier), **cell.row.settings, **tier.settings, **settings}
    overrides["train.seed"] = cell.seed
    overrides.pop("train.epochs", None)
    if starts_from:
        overrides["refit.run"] = starts_from
    shipped = load_recipe(name, overrides)
    epochs = shipped.train.epochs
    if length is not None and shipped.refit.method == "balanced":
        overrides["refit.epochs"] = min(shipped.refit.epochs or DEFAULT_REFIT_EPOCHS, length)
    if length is not None:
        on_fixed_features = shipped.refit.method in TRAINED and not is_second_stage(shipped)
        epochs = min(epochs, length) if on_fixed_features else max(1, round(epochs * length / _standard_epochs(data)))
    return load_recipe(name, {**overrides, "train.epochs": epochs * cell.row.epochs_factor})


@cache
def _standard_epochs(data: str) -> int:
    return load_recipe(f"{data}/{BASE_METHOD}").train.epochs


def _column_settings(column: Column, tier: Tier) -> dict[str, Any]:
    if tier.data is None:
        return dict(column.settings)
    # Other settings belong to the data that is replaced.
    ratio = column.settings.get("data.ratio")
    return {} if ratio is None else {"data.ratio": min(ratio, tier.max_ratio)}


def _parse_epochs(value: Any) -> int | None:
    if value is None:
        return None
    try:
        epochs = int(value)
    except ValueError:
        epochs = 0
    if epochs < 1:
        raise RequestError(f"--train.epochs {value} must be a positive whole number")
    return epochs


def _checked_seeds(seeds: Sequence[int]) -> list[int]:
    if not seeds:
        raise RequestError("--seeds names no seed; give at least one, such as 0")
    for seed in seeds:
        if not 0 <= seed < 2**32:
            raise RequestError(f"--seeds {seed}: a seed is a whole number from 0 to {2**32 - 1}")
    if len(set(seeds)) < len(seeds):
        raise RequestError(f"--seeds {','.join(map(str, seeds))} has a seed twice; give each seed once")
    return list(seeds)
