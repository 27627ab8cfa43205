"""Build networks: the registry of backbones, networks from plain arguments or from a recipe, and their signatures."""

from functools import cache, partial
from pathlib import Path

import torch
from torch import nn

from elfnet.errors import RequestError, WorkError
from elfnet.models.cifar_resnet import cifar_resnet, initialise_convolutions, late_resnet
from elfnet.models.densenet import SMALLEST_IMAGE, densenet, zero_bias
from elfnet.models.experts import ExpertNetwork, copy_group
from elfnet.models.heads import Head, exit_head, final_head
from elfnet.models.mlp import initialise_dense, staged_mlp
from elfnet.models.msdnet import CLASSIFIER_FILTERS, PackedBackbone, msdnet
from elfnet.models.resnet import imagenet_resnet, initialise_fan_out
from elfnet.models.resnet9 import resnet9
from elfnet.models.staged import TRUNKS, Architecture, Backbone, StagedNetwork, Trunk
from elfnet.models.two_branches import two_branch_network
from elfnet.models.weights import LoadedWeights, fits_backbone, load_backbone_weights, read_weights_file
from elfnet.recipe.schema import ModelRecipe
from elfnet.registry import Registry

BACKBONES: Registry[Architecture] = Registry("model.backbone")
"""Architectures by `model.backbone`."""

for _depth in (8, 14, 20, 32, 44, 56):
    BACKBONES.register(f"resnet{_depth}")(
        Architecture(partial(cifar_resnet, _depth), "conv", 64, initialise_convolutions)
    )

BACKBONES.register("resnet32_late")(Architecture(late_resnet, "conv", 64, initialise_convolutions))

# Their maps are small and wide where exits are, so that one hidden layer on a grid of pixels suffices. Three poolings
# leave one of 8 pixels; a stride before them rounds up.
for _name, _stride in (("resnet9", 1), ("resnet9_s2", 2)):
    BACKBONES.register(_name)(
        Architecture(
            partial(resnet9, stride=_stride), "grid", 128, initialise_convolutions, smallest_image=7 * _stride + 1
        )
    )

# The paper uses separable heads for ResNet-50 and does not mention other ImageNet ResNets. They are the default for all
# of these: plain heads with as many filters cost 8 % of ResNet-18, 17 % of ResNet-10 and 44 % of ResNet-50, separable
# ones 5 %.
for _name, _blocks, _options in (
    ("resnet10", (1, 1, 1, 1), {"bottleneck": False}),
    ("resnet18", (2, 2, 2, 2), {"bottleneck": False}),
    ("resnet34", (3, 4, 6, 3), {"bottleneck": False}),
    ("resnet50", (3, 4, 6, 3), {"bottleneck": True}),
    ("resnet101", (3, 4, 23, 3), {"bottleneck": True}),
    ("resnet152", (3, 8, 36, 3), {"bottleneck": True}),
    ("resnext50_32x4d", (3, 4, 6, 3), {"bottleneck": True, "groups": 32, "group_width": 4}),
):
    BACKBONES.register(_name)(
        Architecture(
            partial(imagenet_resnet, _blocks, **_options),
            "separable",
            0,
            initialise_fan_out,
            nn.Linear.reset_parameters,
        )
    )

BACKBONES.register("mlp")(Architecture(staged_mlp, "none", 0, initialise_dense, repeats_last_group=False))

for _name, _layers in (
    ("densenet121", (6, 12, 24, 16)),
    ("densenet169", (6, 12, 32, 32)),
    ("densenet201", (6, 12, 48, 32)),
):
    BACKBONES.register(_name)(
        Architecture(partial(densenet, _layers), "conv", 0, initialise_convolutions, zero_bias, SMALLEST_IMAGE)
    )

BACKBONES.register("msdnet")(
    Architecture(msdnet, "conv", CLASSIFIER_FILTERS, initialise_fan_out, zero_bias, repeats_last_group=False)
)


def exit_trunk(backbone: str, *, exit_head: str = "auto", head_filters: int = 0) -> tuple[Trunk, int]:
    """The kind of the trunk of early exits, and its number of filters.

    `auto` and 0 are replaced by the defaults of the backbone. The number stays 0 if the default is as many filters as
    input channels.

    Raises:
        RequestError: the backbone or the kind is unknown.
    """
    architecture = BACKBONES[backbone]
    filters = head_filters or architecture.exit_filters
    if exit_head == "auto":
        return architecture.exit_trunk, filters
    for trunk in TRUNKS:
        if trunk == exit_head:
            return trunk, filters
    raise RequestError(f"unknown model.exit_head {exit_head!r}; choose from: auto, {', '.join(TRUNKS)}")


def build_network(
    backbone: str,
    *,
    classes: int,
    image_channels: int = 3,
    exits: bool = True,
    branches: int = 1,
    experts: int = 1,
    head: str = "linear",
    exit_head: str = "auto",
    head_filters: int = 0,
    head_stride: int = 2,
) -> StagedNetwork:
    """Build a network with the paper's exits: one before each block group, and the last classifier.

    Args:
        backbone: the name of the backbone, such as `resnet32`.
        classes: the number of classes.
        image_channels: the number of channels of the images.
        exits: if false, build the plain backbone with its last classifier only.
        branches: 2 for the two-branch network of BBN, without early exits.
        experts: the number of copies of the last block group, each with a classifier and an exit; see `ExpertNetwork`.
        head: the classifier of every exit, `linear` or `cosine`.
        exit_head: the trunk of the early exits, `conv`, `separable`, `grid` or `none` (see `exit_head` in
            `elfnet.models`); `auto` for the default of the backbone.
        head_filters: the number of filters of its convolutions; 0 for the default of the backbone (64 for CIFAR
            ResNets, 128 for MSDNet and ResNet-9, else the number of input channels).
        head_stride: the stride of the convolutions of `conv` and `separable`.

    Raises:
        RequestError: a name is unknown, or the backbone does not support the setting.

    Example:
        >>> from elfnet import build_network
        >>> build_network("resnet32", classes=10).exits
        4
    """
    trunk, filters = exit_trunk(backbone, exit_head=exit_head, head_filters=head_filters)
    architecture = BACKBONES[backbone]
    cut = architecture.build(image_channels)
    last = final_head(cut.channels[-1], classes, kind=head)
    if experts > 1:
        _require_repeatable(backbone, experts, with_exits=exits and branches == 1)
    if branches == 2:
        network = two_branch_network(backbone, cut, classes=classes, kind=head)
    elif exits:
        early = _early_heads(cut, classes, kind=head, trunk=trunk, filters=filters, stride=head_stride)
        if experts == 1:
            network = StagedNetwork(cut.stages, [*early, last], classes=classes)
        else:
            *shared, group = cut.stages
            classifiers = [last, *(final_head(cut.channels[-1], classes, kind=head) for _ in range(experts - 1))]
            network = ExpertNetwork(shared, early, copy_group(group, experts), classifiers, classes=classes)
    else:
        network = StagedNetwork([nn.Sequential(*cut.stages)], [last], classes=classes)
    _initialise(network, architecture)
    return network


def _require_repeatable(backbone: str, experts: int, *, with_exits: bool) -> None:
    if not with_exits:
        raise RequestError(f"model.experts={experts} needs exits: set model.exits=true and model.branches=1")
    if not BACKBONES[backbone].repeats_last_group:
        raise RequestError(
            f"model.experts={experts} copies the last group of blocks, and model.backbone={backbone} has no such "
            "group; set model.experts=1, or use a resnet or densenet"
        )


def _early_heads(cut: Backbone, classes: int, *, kind: str, trunk: Trunk, filters: int, stride: int) -> list[Head]:
    heads = [
        exit_head(channels, classes, kind=kind, filters=filters or channels, stride=stride, trunk=trunk)
        for channels in cut.channels[:-1]
    ]
    return cut.adapt_heads(heads) if isinstance(cut, PackedBackbone) else heads


def _initialise(network: StagedNetwork, architecture: Architecture) -> None:
    """Initialise stages as is usual for their architecture, and the convolutions of all exits in one way."""
    architecture.initialise(network.stages)
    initialise_convolutions(network.heads)
    if architecture.initialise_classifier is not None:
        for module in network.heads.modules():
            if isinstance(module, nn.Linear):
                architecture.initialise_classifier(module)


def network_of(model: ModelRecipe, *, classes: int, image_channels: int) -> StagedNetwork:
    """Build the network of a recipe with new weights; `model.weights` is not read."""
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
    """Load `model.weights` into a new network; return None if the recipe names none.

    Raises:
        RequestError: the licence of the weights is not stated.
        WorkError: the weights do not fit; the message names the backbone that they are of, if it is another one.
    """
    if not model.weights:
        return None
    if not model.weights_licence.strip():
        raise RequestError(
            f"model.weights={model.weights} needs model.weights_licence, which the model card states: the licence of "
            "these weights, such as apache-2.0; own; or unknown"
        )
    try:
        return load_backbone_weights(network, model.weights)
    except WorkError as error:
        try:
            found = backbone_of_weights(model.weights)
        except WorkError:
            raise error from None
        if found == model.backbone:
            raise
        raise WorkError(
            f"model.weights: {model.weights} has weights of {found}, not of model.backbone={model.backbone}; set "
            f"model.backbone={found}"
        ) from error


@cache
def _without_values(backbone: str) -> StagedNetwork:
    """A plain network of names and shapes alone."""
    with torch.device("meta"):
        return build_network(backbone, classes=2, exits=False)


def backbone_of_weights(file: str | Path) -> str:
    """Return the name of the backbone that a weights file belongs to, by the names and shapes of its tensors.

    Args:
        file: a weights file or a folder, of torchvision, timm, transformers or a run; see `read_weights_file`.

    Raises:
        WorkError: the file cannot be read, or its tensors are of no known backbone.
    """
    given = read_weights_file(file)
    for name in BACKBONES.names():
        if name in ("mlp", "msdnet"):
            continue
        if fits_backbone(_without_values(name), given):
            return name
    raise WorkError(
        f"model.weights: the {len(given)} tensors of {file} ({', '.join(list(given)[:2])}, ...) are of no backbone "
        "known here; give weights of a ResNet, ResNeXt or DenseNet, or add exits to your own network with attach_exits"
    )


def resolve_defaults(model: ModelRecipe) -> ModelRecipe:
    """Replace the settings `auto` and 0 by the defaults of the backbone.

    Recipes that describe the same network (such as `head_filters` 0 and 64) are equal afterwards.
    """
    trunk, filters = exit_trunk(model.backbone, exit_head=model.exit_head, head_filters=model.head_filters)
    return model.model_copy(update={"exit_head": trunk, "head_filters": filters})


def network_signature(model: ModelRecipe, *, classes: int, image_channels: int) -> str:
    """One line that identifies the architecture of a network; checkpoints with another signature do not fit it."""
    if model.branches == 2:
        return f"two-branch {model.backbone}, {model.head} head, {classes} classes, {image_channels} channels"
    if not model.exits:
        return f"plain {model.backbone}, {model.head} head, {classes} classes, {image_channels} channels"
    resolved = resolve_defaults(model)
    kind = f"{model.head} heads" if resolved.exit_head == "conv" else f"{model.head} {resolved.exit_head} heads"
    filters = f"{resolved.head_filters} filters" if resolved.head_filters else "as many filters as channels"
    heads = f"{kind} of {filters} at stride {model.head_stride}"
    if model.experts > 1:
        heads = f"{model.experts} experts, {heads}"
    return f"{model.backbone} with exits, {heads}, {classes} classes, {image_channels} channels"
