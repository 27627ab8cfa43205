"""The checkpoints of a run, with the network that their weights are for."""

from collections.abc import Mapping
from typing import Any

from elfnet.checkpoint.format import Checkpoint, load_checkpoint, require_network
from elfnet.checkpoint.run_directory import RunDirectory
from elfnet.models.of_run import signature_of_run
from elfnet.recipe.schema import ModelRecipe, Recipe
from elfnet.recipe.stages import stage_of_weights


def load_run_checkpoint(
    run: RunDirectory, which: str, recipe: Recipe, info: Mapping[str, Any]
) -> tuple[Checkpoint, ModelRecipe]:
    """A verified checkpoint of a run, and the model section of the network that its weights are for.

    A second stage may have other heads than the training before it, so how far a run is tells which network it has.

    Args:
        which: `last` or `best`.
        recipe, info: of the run, as its directory has them.
    """
    path = run.checkpoint(which)
    checkpoint = load_checkpoint(path)
    model = stage_of_weights(recipe, checkpoint.epochs_done).recipe.model
    require_network(checkpoint, signature_of_run(model, info), path)
    return checkpoint, model
