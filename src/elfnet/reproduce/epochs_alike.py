"""How many epochs of two trainings are the same, from their recipes alone."""

from elfnet.losses.weighting import weights_in_force
from elfnet.methods.refit.build import is_second_stage
from elfnet.recipe.schema import Recipe
from elfnet.recipe.stages import total_epochs
from elfnet.reproduce.same_recipe import Content, changed, content_of, differences
from elfnet.train.build import schedule_of

DECIDED_AFTERWARDS = frozenset(
    {"exits.confidence", "exits.infer_confidence_scale", "exits.logit_adjustment", "exits.search"}
)
"""Settings that training does not read."""

CLASS_WEIGHTS = frozenset({"criterion.reweight", "train.drw_start"})
"""Settings that training reads only in epochs in which there are class weights."""


def epochs_alike(one: Recipe, other: Recipe) -> int:
    """From the start; all epochs of the first if the trainings are the same in everything.

    A second stage changes nothing in the training before it.

    Example:
        >>> from elfnet.recipe.load import load_recipe
        >>> ce, weighted, focal = (load_recipe(f"cifar10-lt/{name}") for name in ("ce", "ce-drw", "focal"))
        >>> epochs_alike(ce, weighted), epochs_alike(ce, ce), epochs_alike(ce, focal)
        (160, 200, 0)
    """
    different = {name for name, *_ in differences(_as_trained(one), _as_trained(other))} - DECIDED_AFTERWARDS
    in_second_stage = {name for name in different if name.startswith("refit.")} if _may_share(one, other) else set()
    if different - CLASS_WEIGHTS - in_second_stage:
        return 0
    epochs = range(one.train.epochs)
    alike = one.train.epochs if in_second_stage else total_epochs(one)
    return next((epoch for epoch in epochs if _weights(one, epoch) != _weights(other, epoch)), alike)


def _may_share(one: Recipe, other: Recipe) -> bool:
    """Whether what they say about refits concerns a second stage only, which comes after the training."""
    return all(recipe.refit.method == "none" or is_second_stage(recipe) for recipe in (one, other))


def _weights(recipe: Recipe, epoch: int) -> str:
    return weights_in_force(epoch, reweight=recipe.criterion.reweight, start=schedule_of(recipe).drw_start)


def _as_trained(recipe: Recipe) -> Content:
    """The same training under one name."""
    content = content_of(recipe)
    if recipe.criterion.loss == "balanced-softmax":
        return changed(content, {"criterion.loss": "logit-adjusted", "criterion.adjust_tau": 1.0})
    return content
