"""The plan of a table: which runs are requested, how far each of them is, and how long the rest takes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

from elfnet.methods.refit.build import FITTED
from elfnet.recipe.schema import ModelRecipe, Recipe
from elfnet.recipe.stages import total_epochs
from elfnet.reproduce.cell import Cell, cell_recipe, check_settings, select_cells
from elfnet.reproduce.directory import TableDirectory
from elfnet.reproduce.paper_table import PaperTable, Tier, get_tier, load_table
from elfnet.run.directory import RunDirectory

DONE, BEGUN, TO_DO = "done", "begun", "to do"


@dataclass(frozen=True)
class PlannedRun:
    """A requested run and its state.

    Attributes:
        baseline: the network of the column's baseline row.
        state: `done`, `begun` (stopped before its end) or `to do`.
        epochs_done: of `epochs`.
    """

    cell: Cell
    recipe: Recipe
    baseline: ModelRecipe
    state: str
    epochs_done: int

    @property
    def epochs(self) -> int:
        """Epochs of the whole run; 0 for classifiers that are fitted to the features of another run."""
        return training_epochs(self.recipe)

    @property
    def epochs_left(self) -> int:
        return self.epochs - self.epochs_done


def training_epochs(recipe: Recipe) -> int:
    """Return the number of epochs of all stages of a recipe; 0 if it is fitted to features instead of trained."""
    return 0 if recipe.refit.method in FITTED else total_epochs(recipe)


def plan_table(
    name: str,
    out: str | Path,
    *,
    tier: str = "smoke",
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
    seeds: Sequence[int] = (0,),
    settings: Mapping[str, Any] | None = None,
) -> list[PlannedRun]:
    """List the runs that `reproduce_table` would do with the same arguments, with their state. Nothing is run."""
    table = load_table(name)
    cells = select_cells(table, rows=rows, columns=columns, seeds=seeds)
    return make_plan(table, get_tier(tier), cells, TableDirectory(Path(out)), settings or {})


def make_plan(
    table: PaperTable, tier: Tier, cells: Sequence[Cell], directory: TableDirectory, settings: Mapping[str, Any]
) -> list[PlannedRun]:
    """Plan the runs of the given cells. All are checked before any of them is run.

    Raises:
        RequestError: a recipe is not valid, or the directory holds another table or runs with other recipes.
    """
    check_settings(settings)
    directory.check_same_table(table.name, tier.name)

    def recipe(cell: Cell) -> Recipe:
        return cell_recipe(cell, tier, settings, starts_from=directory.source_run(cell))

    recipes = {cell.name: recipe(cell) for cell in cells}
    for cell in directory.existing_cells(table):
        directory.check_same_recipe(cell, recipes.get(cell.name) or recipe(cell))
    baseline_row = table.row(table.baseline)
    columns = {cell.column.name: cell.column for cell in cells}
    baselines = {name: recipe(Cell(baseline_row, column, 0)).model for name, column in columns.items()}
    return [
        PlannedRun(
            cell, recipes[cell.name], baselines[cell.column.name], *_state(cell, recipes[cell.name], directory, cells)
        )
        for cell in cells
    ]


def _state(cell: Cell, recipe: Recipe, directory: TableDirectory, cells: Sequence[Cell]) -> tuple[str, int]:
    run = directory.run(cell)
    if directory.record_file(cell).is_file() and not _is_missing_source(cell, run, directory, cells):
        return DONE, training_epochs(recipe)
    return BEGUN if run.exists() else TO_DO, len(run.log())


def _is_missing_source(cell: Cell, run: RunDirectory, directory: TableDirectory, cells: Sequence[Cell]) -> bool:
    """Whether the run of a cell is deleted although another cell, which is not done, starts from it."""
    return not run.exists() and any(
        other.row.starts_from == cell.row.name
        and (other.column.name, other.seed) == (cell.column.name, cell.seed)
        and not directory.record_file(other).is_file()
        for other in cells
    )


@dataclass
class EpochTimes:
    """Seconds per epoch by column and row."""

    _seconds: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def add(self, cell: Cell, seconds: float) -> None:
        """Add the duration of one epoch."""
        self._seconds.setdefault(cell.column.name, {}).setdefault(cell.row.name, []).append(seconds)

    def estimate(self, cell: Cell) -> float | None:
        """Estimate the seconds per epoch of a cell; None if nothing is measured.

        The estimate is the mean of the same row and column with any seed; if there is none, the mean of the column's
        rows; if there is none, the mean of all rows.
        """
        column = self._seconds.get(cell.column.name, {})
        if cell.row.name in column:
            return mean(column[cell.row.name])
        rows = column or {f"{c}/{r}": times for c, rows in self._seconds.items() for r, times in rows.items()}
        return mean(mean(times) for times in rows.values()) if rows else None

    def remaining(self, todo: Iterable[tuple[Cell, int]]) -> float | None:
        """Estimate the seconds that cells take with the given numbers of epochs; None if nothing is measured."""
        total = 0.0
        for cell, epochs in todo:
            seconds = self.estimate(cell)
            if seconds is None:
                return None
            total += seconds * epochs
        return total


def measured_epoch_times(table: PaperTable, directory: TableDirectory) -> EpochTimes:
    """Collect the epoch times of all runs in a directory from their logs, or from records if the runs are deleted."""
    times = EpochTimes()
    for cell in directory.existing_cells(table):
        log = directory.run(cell).log()
        for epoch in log:
            times.add(cell, epoch.seconds)
        record = None if log else directory.record(cell)
        if record is not None and record["seconds_per_epoch"] is not None:
            times.add(cell, record["seconds_per_epoch"])
    return times
