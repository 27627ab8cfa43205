"""What is to be done for a table, and what is done already."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elfnet.recipe.schema import ModelRecipe, Recipe
from elfnet.recipe.stages import total_epochs
from elfnet.reproduce.cell import Cell, recipe_of, refuse_settings
from elfnet.reproduce.directory import TableDirectory
from elfnet.reproduce.paper_table import PaperTable
from elfnet.reproduce.tiers import Tier
from elfnet.reproduce.time_left import Pace
from elfnet.run.directory import RunDirectory
from elfnet.train.refit import is_fitted

DONE, BEGUN, TO_DO = "done", "begun", "to do"


@dataclass(frozen=True)
class Step:
    """A run that is asked for.

    Attributes:
        baseline: the network of the column's plain row.
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
        """0 for what is fitted to the features of another run instead of trained."""
        return 0 if is_fitted(self.recipe) else total_epochs(self.recipe)

    @property
    def epochs_left(self) -> int:
        return self.epochs - self.epochs_done


def make_plan(
    table: PaperTable, tier: Tier, cells: Sequence[Cell], directory: TableDirectory, settings: Mapping[str, Any]
) -> list[Step]:
    """The steps, all of them checked before any is run: recipes exist, and what is there is of the same ones."""
    refuse_settings(settings)
    directory.refuse_another_table(table.name, tier.name)

    def recipe(cell: Cell) -> Recipe:
        return recipe_of(cell, tier, settings, starts_from=directory.start_of(cell))

    recipes = {cell.name: recipe(cell) for cell in cells}
    for cell in directory.found(table):
        directory.refuse_another_recipe(cell, recipes.get(cell.name) or recipe(cell))
    plain = table.row(table.baseline)
    columns = {cell.column.name: cell.column for cell in cells}
    baselines = {name: recipe(Cell(plain, column, 0)).model for name, column in columns.items()}
    return [
        Step(cell, recipes[cell.name], baselines[cell.column.name], *_state(cell, recipes[cell.name], directory, cells))
        for cell in cells
    ]


def _state(cell: Cell, recipe: Recipe, directory: TableDirectory, cells: Sequence[Cell]) -> tuple[str, int]:
    run = directory.run(cell)
    if directory.record_file(cell).is_file() and not _run_is_missed(cell, run, directory, cells):
        return DONE, 0 if is_fitted(recipe) else total_epochs(recipe)
    return BEGUN if run.exists() else TO_DO, len(run.log())


def _run_is_missed(cell: Cell, run: RunDirectory, directory: TableDirectory, cells: Sequence[Cell]) -> bool:
    """Whether only the record of a run is here, and another run, which is not done, starts from the run itself."""
    return not run.exists() and any(
        other.row.starts_from == cell.row.name
        and (other.column.name, other.seed) == (cell.column.name, cell.seed)
        and not directory.record_file(other).is_file()
        for other in cells
    )


def measured_pace(table: PaperTable, directory: TableDirectory) -> Pace:
    """Of all runs that are here, from their logs, or from their records where only those are left."""
    pace = Pace()
    for cell in directory.found(table):
        log = directory.run(cell).log()
        for epoch in log:
            pace.add(cell, epoch["seconds"])
        record = None if log else directory.record(cell)
        if record is not None and record["seconds_per_epoch"] is not None:
            pace.add(cell, record["seconds_per_epoch"])
    return pace
