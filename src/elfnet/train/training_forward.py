"""What the trainer asks of a forward pass, and the one that a recipe calls for."""

# Shapes: E exits, B batch, C classes

from elfnet.data.examples import Ints
from elfnet.exits.training_rule import TrainingRule
from elfnet.methods.bbn import BilateralForward, CumulativeSchedule
from elfnet.methods.cutmix import CutMix, MinorityCutMix
from elfnet.methods.mixing import Mixing, MixSchedule, unmixed
from elfnet.methods.mixup import ManifoldForward, ManifoldMixup, Mixup
from elfnet.models.staged import StagedNetwork
from elfnet.recipe.schema import Recipe, TrainRecipe
from elfnet.train.exiting_forward import ExitingForward

TrainingForward = ExitingForward | ManifoldForward | BilateralForward
"""Called with images, leading labels (B,) and what the mixing adds; gives logits (E, B, C) and visited (E, B)."""


def forward_and_mixing(
    recipe: Recipe, network: StagedNetwork, rule: TrainingRule | None, labels_N: Ints
) -> tuple[TrainingForward, Mixing]:
    """The two belong together: what a mixing draws is what its forward pass takes.

    Args:
        labels_N: of the training split.
    """
    if recipe.model.branches == 2:
        return BilateralForward(network), CumulativeSchedule(recipe.train.epochs)
    if recipe.train.mix == "manifold":
        forward = ManifoldForward(network)
        return forward, ManifoldMixup(_mix_schedule(recipe.train), forward.depths)
    equilibrium = recipe.criterion.equilibrium
    return ExitingForward(network, rule, left=recipe.exits.left, equilibrium=equilibrium), _mixing(recipe, labels_N)


def _mixing(recipe: Recipe, labels_N: Ints) -> Mixing:
    mix, schedule = recipe.train.mix, _mix_schedule(recipe.train)
    if mix == "cmo":
        return MinorityCutMix(schedule, labels_N)
    if mix == "cutmix":
        return CutMix(schedule)
    return Mixup(schedule) if mix == "mixup" else unmixed


def _mix_schedule(train: TrainRecipe) -> MixSchedule:
    return MixSchedule(
        seed=train.seed,
        alpha=train.mix_alpha,
        epochs=train.epochs,
        off_epochs=train.mix_off_epochs,
        probability=train.mix_probability,
    )
