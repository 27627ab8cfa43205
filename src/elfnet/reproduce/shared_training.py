"""Rows whose trainings are the same share one: the second begins with the first one's weights.

BranchyNet's training is that of all exits without a rule, bit for bit; only what an exit compares with its threshold is
another. Balanced softmax is the logit-adjusted loss at tau 1. Training them again would cost an hour for nothing.
"""

import shutil
from collections.abc import Iterable

from elfnet.checkpoint.run_directory import RunDirectory
from elfnet.recipe.load import validate_recipe
from elfnet.recipe.schema import Recipe
from elfnet.reproduce.cell import Cell
from elfnet.reproduce.directory import TableDirectory
from elfnet.reproduce.same_recipe import Content, changed, content_of, differences

DECIDED_AFTERWARDS = frozenset({"exits.confidence", "exits.infer_confidence_scale", "exits.search"})
"""Settings that training does not read."""


def take_over_training(cell: Cell, asked: Recipe, directory: TableDirectory, done: Iterable[Cell]) -> None:
    """Begin a run with the training of a finished one, if there is one that was trained alike.

    Args:
        done: runs of the table that are finished.
    """
    run = directory.run(cell)
    if run.root.exists():
        return
    for other in done:
        source = directory.run(other)
        if (other.column.name, other.seed) != (cell.column.name, cell.seed) or not source.exists():
            continue
        there, wanted = content_of(source.recipe()), content_of(asked)
        different = {name: value for name, _, value in differences(there, wanted)}
        in_training = {name for name, *_ in differences(_as_trained(there), _as_trained(wanted))} - DECIDED_AFTERWARDS
        if in_training or not different:
            continue
        # Made beside it and then renamed: a run that is cut short here has not been begun.
        begun = RunDirectory(run.root.with_suffix(".begun"))
        shutil.rmtree(begun.root, ignore_errors=True)
        shutil.copytree(source.root / "checkpoints", begun.root / "checkpoints")
        shutil.copyfile(source.log_file, begun.log_file)
        recipe = validate_recipe(str(begun.recipe_file), changed(there, different))
        begun.create(recipe, {**source.info(), "training_of": other.row.name})
        begun.root.rename(run.root)
        return


def _as_trained(content: Content) -> Content:
    """The same training under one name."""
    if content["criterion"]["loss"] == "balanced-softmax":
        return changed(content, {"criterion.loss": "logit-adjusted", "criterion.adjust_tau": 1.0})
    return content
