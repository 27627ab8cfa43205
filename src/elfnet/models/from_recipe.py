"""The model section of a recipe, flattened into plain arguments."""

from elfnet.models.build import build_network, exit_trunk
from elfnet.models.staged import StagedNetwork
from elfnet.models.weights import LoadedWeights, load_backbone_weights
from elfnet.recipe.schema import ModelRecipe


def network_of(model: ModelRecipe, *, classes: int, image_channels: int) -> StagedNetwork:
    """The network with new weights: what a checkpoint is loaded into, so `model.weights` is not needed for it."""
    return build_network(
        model.backbone,
        classes=classes,
        image_channels=image_channels,
        exits=model.exits,
        branches=model.branches,
        experts=model.experts,
        head=model.head,
        exit_head=model.exit_head,
        head_filters=model.head_filters,
        head_stride=model.head_stride,
    )


def load_initial_weights(model: ModelRecipe, network: StagedNetwork) -> LoadedWeights | None:
    """Load `model.weights` into a network that starts to be trained; None if the recipe names no file."""
    return load_backbone_weights(network, model.weights) if model.weights else None


def settled(model: ModelRecipe) -> ModelRecipe:
    """The same network with everything that is left to its backbone written out.

    Two recipes that differ in words only (`head_filters` 0 and 64, say) are equal afterwards.
    """
    trunk, filters = exit_trunk(model.backbone, exit_head=model.exit_head, head_filters=model.head_filters)
    return model.model_copy(update={"exit_head": trunk, "head_filters": filters})


def network_signature(model: ModelRecipe, *, classes: int, image_channels: int) -> str:
    """One line that tells networks apart whose weights do not fit each other; checkpoints carry it."""
    if model.branches == 2:
        return f"two-branch {model.backbone}, {model.head} head, {classes} classes, {image_channels} channels"
    if not model.exits:
        return f"plain {model.backbone}, {model.head} head, {classes} classes, {image_channels} channels"
    written = settled(model)
    kind = f"{model.head} heads" if written.exit_head == "conv" else f"{model.head} {written.exit_head} heads"
    filters = f"{written.head_filters} filters" if written.head_filters else "as many filters as channels"
    heads = f"{kind} of {filters} at stride {model.head_stride}"
    if model.experts > 1:
        heads = f"{model.experts} experts, {heads}"
    return f"{model.backbone} with exits, {heads}, {classes} classes, {image_channels} channels"
