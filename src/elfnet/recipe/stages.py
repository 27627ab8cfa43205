"""The stages of a run, as its recipe describes them.

Most runs have one stage. With `refit.method=balanced` classifiers are learnt anew in a second stage, on features that
stay as they are: after the training of the same run (`refit.epochs`), or as a run of its own that starts from a
finished one (`refit.run`). Every stage is described by a recipe, so that one loop trains both.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from elfnet.recipe.renamed import translate_stored
from elfnet.recipe.schema import CriterionRecipe, ModelRecipe, Recipe, RefitRecipe, TrainRecipe

TRAINING, BALANCED = "training", "balanced"
DEFAULT_REFIT_EPOCHS = 10
"""Length of a second stage that is a run of its own, unless `refit.epochs` says otherwise."""

COMPUTED_AS_BEFORE = (
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
"""Settings of the train section that hold for a second stage, too. All others are its own."""


@dataclass(frozen=True)
class Stage:
    """Some consecutive epochs of a run.

    Attributes:
        name: `training` or `balanced`; the log has it where a run has a second stage.
        recipe: by which these epochs are trained.
        first, end: of its epochs, 0-based; `end` is the first one after it.
    """

    name: str
    recipe: Recipe
    first: int
    end: int


def stages_of(recipe: Recipe) -> tuple[Stage, ...]:
    """The stages of a recipe's run, in order."""
    if recipe.refit.method != "balanced":
        return (Stage(TRAINING, recipe, 0, recipe.train.epochs),)
    length = recipe.refit.epochs or DEFAULT_REFIT_EPOCHS
    if recipe.refit.run:
        return (Stage(BALANCED, _balanced(recipe, length), 0, length),)
    first = recipe.train.epochs
    training = recipe.model_copy(update={"refit": RefitRecipe()})
    return Stage(TRAINING, training, 0, first), Stage(BALANCED, _balanced(recipe, length), first, first + length)


def stage_of_weights(recipe: Recipe, epochs_done: int) -> Stage:
    """The stage that the weights after `epochs_done` epochs belong to.

    The second stage begins with its first step: after the last epoch of the training they are still the training's.
    """
    stages = stages_of(recipe)
    return next((stage for stage in stages if epochs_done <= stage.end), stages[-1])


def total_epochs(recipe: Recipe) -> int:
    """Epochs of all stages of a run."""
    return stages_of(recipe)[-1].end


def final_recipe(recipe: Recipe) -> Recipe:
    """The recipe of the last stage: it describes the network and the loss that a run ends with."""
    return stages_of(recipe)[-1].recipe


def final_model(recipe: Recipe) -> ModelRecipe:
    """The network that a run ends with."""
    return final_recipe(recipe).model


def final_model_of_stored(content: Mapping[str, Any]) -> ModelRecipe:
    """The network that the run of a stored recipe ends with; no other section has to be valid."""
    sections = translate_stored(content)
    model = ModelRecipe.model_validate(sections.get("model"))
    refit = RefitRecipe.model_validate(sections.get("refit", {}))
    return _refitted(model, refit) if refit.method == "balanced" else model


def loss_scale(recipe: Recipe) -> float:
    """What the loss multiplies logits by before its softmax: `criterion.cosine_scale` for cosine heads, else 1.

    Args:
        recipe: of one stage.
    """
    return recipe.criterion.cosine_scale if recipe.model.head == "cosine" else 1.0


def _refitted(model: ModelRecipe, refit: RefitRecipe) -> ModelRecipe:
    """The network with the heads of the second stage."""
    return model if refit.head == "auto" else model.model_copy(update={"head": refit.head})


def _balanced(recipe: Recipe, epochs: int) -> Recipe:
    """Balanced softmax on every exit, ordinary shuffling, nothing mixed, nobody leaves, the recipe's augmentation."""
    refit, train = recipe.refit, recipe.train
    return recipe.model_copy(
        update={
            "data": recipe.data.model_copy(update={"sampler": "shuffle"}),
            "model": _refitted(recipe.model, refit),
            "exits": recipe.exits.model_copy(update={"rule": "all", "after_exit": "mask"}),
            "criterion": CriterionRecipe(loss="balanced-softmax", cosine_scale=recipe.criterion.cosine_scale),
            "train": TrainRecipe(
                **{name: getattr(train, name) for name in COMPUTED_AS_BEFORE},
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
