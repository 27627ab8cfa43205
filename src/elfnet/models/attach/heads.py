"""Heads for the features of any model: new ones, built for the shape of the features, and the model's own."""

# Shapes: B batch, K channels, H height, W width, T tokens, D features of a token, C classes

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from elfnet.errors import RequestError
from elfnet.models.attach.recorder import restored_state
from elfnet.models.cifar_resnet import initialise_convolutions
from elfnet.models.heads import CLASSIFIERS, exit_head
from elfnet.registry import unknown_name

HEADS = ("auto", "conv", "separable", "mean", "class-token")
HeadBuilder = Callable[[tuple[int, ...]], nn.Module]
ChannelPlace = Literal["auto", "first", "last"]


class TokenHead(nn.Module):
    """Layer norm per token, mean over tokens (or the first token only), and a classifier.

    Features are tokens (B, T, D), vectors (B, D), or maps with channels first or last, whose pixels are the tokens. The
    head runs outside autocast, in the precision of its own parameters.
    """

    def __init__(self, width: int, classifier: nn.Module, *, channels_first: bool, first_token: bool) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.classifier = classifier
        self.channels_first = channels_first
        self.first_token = first_token

    def forward(self, features: Tensor) -> Tensor:
        device = "cpu" if features.is_meta else features.device.type
        if self.channels_first:
            features = features.movedim(1, -1)
        tokens_BTD = features.flatten(1, -2) if features.dim() > 2 else features.unsqueeze(1)
        with torch.autocast(device_type=device, enabled=False):
            tokens_BTD = tokens_BTD.to(self.norm.weight.dtype)
            if self.first_token:
                tokens_BTD = tokens_BTD[:, :1]
            logits_BC: Tensor = self.classifier(self.norm(tokens_BTD).mean(dim=1))
        return logits_BC


def build_head(
    shape: tuple[int, ...], classes: int, *, head: str | HeadBuilder, classifier: str, channels: ChannelPlace
) -> nn.Module:
    """Build a head for features of a shape.

    Args:
        shape: the shape without the batch: (K, H, W), (H, W, K), (T, D) or (D,).
        head: `conv` and `separable` are the paper's exits for feature maps, at stride 2 and with as many filters as
            channels. `mean` is cheap and fits every shape. `class-token` reads the first token. `auto` is `separable`
            for maps with channels first, else `mean`. A function from the shape to a module is also accepted.
        classifier: `linear` or `cosine`.
        channels: the position of the channels in maps.

    Raises:
        RequestError: a name is unknown, or the head does not fit the shape.
    """
    if callable(head):
        return head(shape)
    if head not in HEADS:
        raise unknown_name("head", head, list(HEADS))
    first = _channels_first(shape, channels)
    kind = ("separable" if first else "mean") if head == "auto" else head
    if kind in ("conv", "separable"):
        if not first:
            raise RequestError(
                f"head={kind!r} needs feature maps with the channels first, and the features here are {shape}; "
                "choose head='mean' (or channels='first' if the channels come first)"
            )
        built = exit_head(
            shape[0],
            classes,
            kind=classifier,
            filters=shape[0],
            stride=2,
            trunk="conv" if kind == "conv" else "separable",
        )
        initialise_convolutions(built)
        return built
    if kind == "class-token" and len(shape) != 2:
        raise RequestError(f"head='class-token' needs tokens (T, D), and the features here are {shape}; choose 'mean'")
    width = shape[0] if first else shape[-1]
    return TokenHead(
        width, CLASSIFIERS[classifier](width, classes), channels_first=first, first_token=kind == "class-token"
    )


def _channels_first(shape: tuple[int, ...], channels: ChannelPlace) -> bool:
    """Whether the channels come first. Most maps are square, which shows the channels; else the torch order is used."""
    if channels not in ("auto", "first", "last"):
        raise unknown_name("channels", channels, ["auto", "first", "last"])
    if len(shape) != 3:
        return False
    if channels != "auto":
        return channels == "first"
    return not (shape[0] == shape[1] != shape[2])


@torch.no_grad()
def early_heads(
    stages: Sequence[nn.Module],
    example: Tensor,
    classes: int,
    *,
    head: str | HeadBuilder,
    classifier: str,
    channels: ChannelPlace,
) -> list[nn.Module]:
    """Build one head per stage, on the device of the example, and try each on the features of its stage.

    Raises:
        RequestError: a head does not fit the features, or does not return logits (B, C).
    """
    heads = []
    features = example
    for stage in stages:
        with restored_state(stage):
            features = stage.eval()(features)
        built = build_head(tuple(features.shape[1:]), classes, head=head, classifier=classifier, channels=channels)
        if not isinstance(built, nn.Module):
            raise RequestError(f"head must return a torch module, not a {type(built).__name__}")
        built.to(features.device)
        with restored_state(built):
            logits = built.eval()(features)
        if not isinstance(logits, Tensor) or logits.shape != (len(example), classes):
            found = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            raise RequestError(
                f"the head for features of shape {tuple(features.shape[1:])} returns {found}; "
                f"it must return logits of shape (B, {classes})"
            )
        heads.append(built)
    return heads


@torch.no_grad()
def refuse_mixed_classifiers(stages: Sequence[nn.Module], last: nn.Module, example: Tensor) -> None:
    """Refuse cosine heads at early exits if the last exit does not return cosines.

    Cosines and other logits cannot share a loss or a threshold.
    """
    features = example
    for stage in stages:
        with restored_state(stage):
            features = stage.eval()(features)
    with restored_state(last):
        # Cosines do not depend on the length of the features.
        logits, logits_of_doubled = last.eval()(features), last(features * 2)
    if not torch.allclose(logits, logits_of_doubled, atol=1e-4) or float(logits.abs().max()) > 1.0 + 1e-4:
        raise RequestError(
            "classifier='cosine' needs a model whose own classifier returns cosines too; "
            "replace it by elfnet.models.CosineClassifier first, or choose classifier='linear'"
        )


class OriginalHead(nn.Module):
    """The model's own head, run outside autocast; returns logits (B, C) of at least float32.

    So logits, confidence and loss do not depend on the precision of the backbone.
    """

    def __init__(self, original: nn.Module) -> None:
        super().__init__()
        self.original = original

    def forward(self, features: Tensor) -> Tensor:
        parameter = next(self.original.parameters(), None)
        # The meta device does not support autocast.
        device = "cpu" if features.is_meta else features.device.type
        with torch.autocast(device_type=device, enabled=False):
            logits_BC: Tensor = self.original(features if parameter is None else features.to(parameter.dtype))
        return logits_BC.float() if logits_BC.dtype in (torch.float16, torch.bfloat16) else logits_BC
