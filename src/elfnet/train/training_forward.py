"""What the trainer asks of a forward pass, and the one that a recipe calls for."""

# Shapes: E exits, B batch, C classes

from elfnet.exits.training_rule import TrainingRule
from elfnet.methods.bbn import BilateralForward, CumulativeSchedule
from elfnet.methods.manifold_mixup import ManifoldForward, ManifoldMixup
from elfnet.methods.mixing import Mixing, unmixed
from elfnet.methods.mixup import Mixup
from elfnet.models.staged import StagedNetwork
from elfnet.recipe.schema import Recipe
from elfnet.train.exiting_forward import ExitingForward

TrainingForward = ExitingForward | ManifoldForward | BilateralForward
"""Called with images, leading labels (B,) and what the mixing adds; gives logits (E, B, C) and visited (E, B)."""


def forward_and_mixing(
    recipe: Recipe, network: StagedNetwork, rule: TrainingRule | None
) -> tuple[TrainingForward, Mixing]:
    """The two belong together: what a mixing draws is what its forward pass takes."""
    if recipe.model.branches == 2:
        return BilateralForward(network), CumulativeSchedule(recipe.train.epochs)
    if recipe.train.mix == "manifold":
        forward = ManifoldForward(network)
        return forward, ManifoldMixup(recipe.train.mix_alpha, forward.depths)
    mixing = Mixup(recipe.train.mix_alpha) if recipe.train.mix == "mixup" else unmixed
    equilibrium = recipe.criterion.equilibrium
    return ExitingForward(network, rule, left=recipe.exits.left, equilibrium=equilibrium), mixing
