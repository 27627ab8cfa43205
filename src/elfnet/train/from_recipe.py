"""The exits and train sections of a recipe, flattened into plain arguments."""

from elfnet.criterion.base_loss import BaseLoss, build_loss
from elfnet.criterion.distillation import Distillation
from elfnet.criterion.exit_loss import ExitLoss
from elfnet.errors import RequestError
from elfnet.exits.threshold import parse_threshold
from elfnet.exits.training_rule import TrainingRule
from elfnet.recipe.schema import Recipe
from elfnet.recipe.stages import loss_scale
from elfnet.train.schedule import Schedule, scale_schedule


def schedule_of(recipe: Recipe) -> Schedule:
    train = recipe.train
    return scale_schedule(
        epochs=train.epochs,
        reference_epochs=train.schedule_epochs,
        lr=train.lr,
        warmup_epochs=train.warmup_epochs,
        lr_steps=train.lr_steps,
        lr_factor=train.lr_factor,
        drw_start=train.drw_start,
        kind=train.schedule,
    )


def rule_of(recipe: Recipe, classes: int) -> TrainingRule | None:
    """Eq. 1 as the recipe has it; None for plain networks and for joint training over all exits."""
    try:
        threshold = parse_threshold(recipe.exits.train_threshold, classes=classes)
    except RequestError as error:
        raise RequestError(f"exits.train_threshold: {error}") from error
    if not recipe.model.exits or recipe.exits.rule == "all":
        return None
    return TrainingRule(threshold=threshold, confidence_scale=recipe.exits.train_confidence_scale)


def loss_of(recipe: Recipe, class_counts: list[int]) -> BaseLoss:
    """The base loss, with the scale that suits the recipe's heads."""
    criterion = recipe.criterion
    return build_loss(
        criterion.loss,
        class_counts,
        focal_gamma=criterion.focal_gamma,
        ldam_max_margin=criterion.ldam_max_margin,
        ldam_power=criterion.ldam_power,
        scale=loss_scale(recipe),
        adjust_tau=criterion.adjust_tau,
    )


def exit_loss_of(
    recipe: Recipe,
    class_counts: list[int],
    exits: int,
    *,
    experts: int = 1,
    temperature: float | None = None,
) -> ExitLoss:
    """The loss of a recipe; `temperature` is that of distillation in a run that goes on."""
    criterion = recipe.criterion
    distillation = None
    if criterion.distil:
        start = criterion.distil_temperature if temperature is None else temperature
        distillation = Distillation(criterion.distil, temperature=start, confidence=criterion.distil_confidence)
    return ExitLoss(
        loss_of(recipe, class_counts),
        exits,
        experts=experts,
        exit_weights=criterion.exit_weights,
        distillation=distillation,
    )
