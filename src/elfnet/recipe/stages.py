"""The stages of a run, and the recipe of each.

Most runs have one stage. With `refit.method=balanced` a second stage refits the classifiers on a frozen backbone:
after the training of the same run (`refit.epochs`), or as a separate run that starts from a finished one (`refit.run`).
Every stage has a recipe, so that one training loop serves both.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from elfnet.recipe.renamed import translate_stored
from elfnet.recipe.schema import CriterionRecipe, ModelRecipe, Recipe, RefitRecipe, TrainRecipe

TRAINING, BALANCED = "training", "balanced"
DEFAULT_REFIT_EPOCHS = 10
"""Epochs of a second stage that is a separate run, if `refit.epochs` is 0."""

SHARED_TRAIN_FIELDS = (
    "batch_size",
    "accumulate",
    "seed",
    "precision",
    "compile",
    "channels_last",
    "device",
    "threads",
    "evaluate_every",
)
"""Fields of the train section that the second stage takes over from the recipe."""


@dataclass(frozen=True)
class Stage:
    """Consecutive epochs of a run that are trained by one recipe.

    Attributes:
        name: `training` or `balanced`; written to the log if a run has two stages.
        recipe: The recipe of these epochs.
        first: The first epoch, 0-based.
        end: One past the last epoch.
    """

    name: str
    recipe: Recipe
    first: int
    end: int


def stages_of(recipe: Recipe) -> tuple[Stage, ...]:
    """The stages of the run of a recipe, in order."""
    if recipe.refit.method != "balanced":
        return (Stage(TRAINING, recipe, 0, recipe.train.epochs),)
    length = recipe.refit.epochs or DEFAULT_REFIT_EPOCHS
    if recipe.refit.run:
        return (Stage(BALANCED, _recipe_of_second_stage(recipe, length), 0, length),)
    first = recipe.train.epochs
    training = recipe.model_copy(update={"refit": RefitRecipe()})
    second = _recipe_of_second_stage(recipe, length)
    return Stage(TRAINING, training, 0, first), Stage(BALANCED, second, first, first + length)


def stage_of_weights(recipe: Recipe, epochs_done: int) -> Stage:
    """The stage that produced the weights after `epochs_done` epochs.

    After the last epoch of the first stage, the weights still belong to the first stage.
    """
    stages = stages_of(recipe)
    return next((stage for stage in stages if epochs_done <= stage.end), stages[-1])


def total_epochs(recipe: Recipe) -> int:
    """Number of epochs of all stages of a run."""
    return stages_of(recipe)[-1].end


def stops_early(recipe: Recipe, epochs_done: int, best_epoch: int) -> bool:
    """Whether `train.patience` ends the training after these epochs.

    Args:
        epochs_done: Number of finished epochs.
        best_epoch: The best one so far, 0-based; -1 before the first evaluation.
    """
    patience = recipe.train.patience
    return patience > 0 and best_epoch >= 0 and epochs_done - 1 - best_epoch >= patience


def recipes_of_folds(recipe: Recipe) -> dict[int, Recipe]:
    """The recipes of the networks that cross-fitting trains before the final one, by their fold; empty without it.

    Trackers follow the final network only.
    """
    if recipe.data.fold:
        return {}
    return {
        fold: recipe.model_copy(
            update={"data": recipe.data.model_copy(update={"fold": fold}), "track": type(recipe.track)()}
        )
        for fold in range(1, recipe.data.cross_fitting + 1)
    }


def final_recipe(recipe: Recipe) -> Recipe:
    """The recipe of the last stage, which describes the final network and loss of a run."""
    return stages_of(recipe)[-1].recipe


def final_model(recipe: Recipe) -> ModelRecipe:
    """The model section of the last stage, which describes the final network of a run."""
    return final_recipe(recipe).model


def final_model_of_stored(content: Mapping[str, Any]) -> ModelRecipe:
    """The model section of the last stage of a stored recipe; only the sections model and refit are validated."""
    sections = translate_stored(content)
    model = ModelRecipe.model_validate(sections.get("model"))
    refit = RefitRecipe.model_validate(sections.get("refit", {}))
    return _model_of_second_stage(model, refit) if refit.method == "balanced" else model


def loss_scale(recipe: Recipe) -> float:
    """Factor of the logits before the softmax of the loss: `criterion.cosine_scale` for cosine heads, else 1.

    Args:
        recipe: The recipe of one stage.
    """
    return recipe.criterion.cosine_scale if recipe.model.head == "cosine" else 1.0


def _model_of_second_stage(model: ModelRecipe, refit: RefitRecipe) -> ModelRecipe:
    return model if refit.head == "auto" else model.model_copy(update={"head": refit.head})


def _recipe_of_second_stage(recipe: Recipe, epochs: int) -> Recipe:
    """Balanced softmax at every exit, shuffled batches, no mixing, no early exits; augmentation as in the recipe."""
    refit, train = recipe.refit, recipe.train
    return recipe.model_copy(
        update={
            "data": recipe.data.model_copy(update={"sampler": "shuffle"}),
            "model": _model_of_second_stage(recipe.model, refit),
            "exits": recipe.exits.model_copy(update={"rule": "all", "after_exit": "mask"}),
            "criterion": CriterionRecipe(loss="balanced-softmax", cosine_scale=recipe.criterion.cosine_scale),
            "train": TrainRecipe(
                **{name: getattr(train, name) for name in SHARED_TRAIN_FIELDS},
                epochs=epochs,
                schedule_epochs=epochs,
                lr=refit.lr,
                momentum=0.9,
                nesterov=True,
                weight_decay=refit.weight_decay,
                schedule="cosine",
                warmup_epochs=0.0,
                lr_steps=(),
            ),
        }
    )
