"""The model section of a recipe, flattened into plain arguments."""

from elfnet.models.build import build_network
from elfnet.models.staged import StagedNetwork
from elfnet.recipe.schema import ModelRecipe


def network_of(model: ModelRecipe, *, classes: int, image_channels: int) -> StagedNetwork:
    return build_network(
        model.backbone,
        classes=classes,
        image_channels=image_channels,
        exits=model.exits,
        head=model.head,
        head_filters=model.head_filters,
        head_stride=model.head_stride,
    )


def network_signature(model: ModelRecipe, *, classes: int, image_channels: int) -> str:
    """One line that tells networks apart whose weights do not fit each other; checkpoints carry it."""
    if not model.exits:
        return f"plain {model.backbone}, {model.head} head, {classes} classes, {image_channels} channels"
    heads = f"{model.head} heads of {model.head_filters} filters at stride {model.head_stride}"
    return f"{model.backbone} with exits, {heads}, {classes} classes, {image_channels} channels"
