"""Rows whose trainings are the same, or begin the same, share one: the second goes on from what the first has.

BranchyNet's training is that of all exits without a rule, bit for bit; only what an exit compares with its threshold is
another. Balanced softmax is the logit-adjusted loss at tau 1. CE+DRW is CE until the class weights come in, four fifths
of the way. Training them again would cost an hour for nothing.
"""

import shutil
from collections.abc import Iterable
from pathlib import Path

from elfnet.recipe.load import validate_recipe
from elfnet.recipe.schema import Recipe
from elfnet.recipe.stages import total_epochs
from elfnet.reproduce.cell import Cell
from elfnet.reproduce.directory import TableDirectory
from elfnet.reproduce.epochs_alike import epochs_alike
from elfnet.reproduce.same_recipe import changed, content_of, differences
from elfnet.run.directory import RunDirectory


def branch_epochs(recipe: Recipe, others: Iterable[Recipe]) -> frozenset[int]:
    """After which epochs of a training another one may go its own way."""
    return frozenset(epochs_alike(recipe, other) for other in others) - {0, total_epochs(recipe)}


def keep_beginning(run: RunDirectory, epochs: int) -> None:
    """Keep the first epochs of a run, which has just done them, for a row that goes on from there in its own way."""
    kept = _beginning(run, epochs)
    if not kept.is_dir():
        # All at once: what lies there is whole.
        half = kept.with_name(f"{kept.name}.half")
        _copy_training(run, half)
        half.rename(kept)


def take_over_training(cell: Cell, asked: Recipe, directory: TableDirectory, others: Iterable[Cell]) -> None:
    """Begin a run with what another one has of its training: all of it, or a beginning that was kept.

    Args:
        others: runs of the table, begun or finished.
    """
    run = directory.run(cell)
    if run.root.exists():
        return
    sources = [
        (epochs, other)
        for other in others
        if (other.column.name, other.seed) == (cell.column.name, cell.seed)
        and directory.run(other).exists()
        and (epochs := epochs_alike(directory.run(other).recipe(), asked))
        and _training(directory.run(other), epochs) is not None
    ]
    if sources:
        epochs, other = max(sources, key=lambda source: source[0])
        _begin(run, asked, directory.run(other), epochs, row=other.row.name)


def _begin(run: RunDirectory, asked: Recipe, source: RunDirectory, epochs: int, *, row: str) -> None:
    training, there = _training(source, epochs), content_of(source.recipe())
    assert training is not None
    # Made beside it and then renamed: a run that is cut short here has not been begun.
    begun = RunDirectory(run.root.with_suffix(".begun"))
    _copy_training(training, begun.root)
    # Threads, precision and the like stay those that it was begun with.
    different = {name: value for name, _, value in differences(there, content_of(asked))}
    recipe = validate_recipe(str(begun.recipe_file), changed(there, different))
    begun.create(recipe, {**source.info(), "training_of": row, "epochs_taken_over": epochs})
    begun.root.rename(run.root)


def _training(source: RunDirectory, epochs: int) -> RunDirectory | None:
    """Where the first epochs of a run lie: in the run itself, if it has no more than those."""
    beginning = RunDirectory(_beginning(source, epochs))
    if epochs == total_epochs(source.recipe()):
        return source if len(source.log()) == epochs else None
    return beginning if beginning.root.is_dir() else None


def _beginning(run: RunDirectory, epochs: int) -> Path:
    return run.root / "beginnings" / str(epochs)


def _copy_training(source: RunDirectory, to: Path) -> None:
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(source.root / "checkpoints", to / "checkpoints")
    shutil.copyfile(source.log_file, RunDirectory(to).log_file)
