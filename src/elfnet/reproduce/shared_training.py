"""Rows whose trainings are the same, or start with the same epochs, share them.

BranchyNet's training is that of all exits without a rule, bit for bit; they differ in the confidence that is compared
with thresholds. Balanced softmax is the logit-adjusted loss at tau 1. CE+DRW equals CE until the class weights apply,
after four fifths of the epochs. A second stage (`refit.method=balanced`) changes nothing in the training before it. The
row that is run second starts from the checkpoint of the first.
"""

import shutil
from collections.abc import Iterable
from pathlib import Path

from elfnet.recipe.load import validate_recipe
from elfnet.recipe.schema import Recipe
from elfnet.recipe.stages import total_epochs
from elfnet.reproduce.cell import Cell
from elfnet.reproduce.directory import TableDirectory
from elfnet.reproduce.recipe_diff import recipe_dict, recipe_diff, replace_settings, shared_prefix_epochs
from elfnet.run.directory import RunDirectory


def branch_epochs(recipe: Recipe, others: Iterable[Recipe]) -> frozenset[int]:
    """Return after how many epochs other trainings start to differ from this one."""
    return frozenset(shared_prefix_epochs(recipe, other) for other in others) - {0, total_epochs(recipe)}


def save_prefix(run: RunDirectory, epochs: int) -> None:
    """Keep a copy of the state of a run after its first epochs, for rows that share them.

    Args:
        run: a run that has done exactly `epochs` epochs.
    """
    saved = _prefix(run, epochs)
    if not saved.is_dir():
        # Renamed when it is complete, so that an interrupted copy is never used.
        partial = saved.with_name(f"{saved.name}.half")
        _copy_training(run, partial)
        partial.rename(saved)


def start_from_shared(cell: Cell, recipe: Recipe, directory: TableDirectory, others: Iterable[Cell]) -> None:
    """Create the run of a cell from the longest training that it shares with another run; do nothing if there is none.

    Args:
        others: cells of the table that have a run.
    """
    run = directory.run(cell)
    if run.root.exists():
        return
    sources = [
        (epochs, other)
        for other in others
        if (other.column.name, other.seed, other.row.starts_from) == (cell.column.name, cell.seed, cell.row.starts_from)
        and directory.run(other).exists()
        and (epochs := shared_prefix_epochs(directory.run(other).recipe(), recipe))
        and _find_training(directory.run(other), epochs) is not None
    ]
    if sources:
        epochs, other = max(sources, key=lambda source: source[0])
        _create_run(run, recipe, directory.run(other), epochs, row=other.row.name)


def _create_run(run: RunDirectory, recipe: Recipe, source: RunDirectory, epochs: int, *, row: str) -> None:
    training, settings = _find_training(source, epochs), recipe_dict(source.recipe())
    assert training is not None
    # Renamed when it is complete: if this is interrupted, there is no run.
    partial = RunDirectory(run.root.with_suffix(".begun"))
    _copy_training(training, partial.root)
    # Settings that are not compared, such as threads and precision, stay those of the shared epochs.
    changes = {name: value for name, _, value in recipe_diff(settings, recipe_dict(recipe))}
    own = validate_recipe(str(partial.recipe_file), replace_settings(settings, changes))
    partial.create(own, source.info().model_copy(update={"training_of": row, "epochs_taken_over": epochs}))
    partial.root.rename(run.root)


def _find_training(source: RunDirectory, epochs: int) -> RunDirectory | None:
    """Return where the state after the first epochs of a run is: the finished run itself, or a saved prefix."""
    if epochs == total_epochs(source.recipe()):
        return source if len(source.log()) == epochs else None
    prefix = RunDirectory(_prefix(source, epochs))
    return prefix if prefix.root.is_dir() else None


def _prefix(run: RunDirectory, epochs: int) -> Path:
    return run.root / "beginnings" / str(epochs)


def _copy_training(source: RunDirectory, to: Path) -> None:
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(source.root / "checkpoints", to / "checkpoints")
    shutil.copyfile(source.log_file, RunDirectory(to).log_file)
