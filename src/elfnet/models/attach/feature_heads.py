"""Heads for the features of any backbone, sized by their shape."""

# Shapes: B batch, K channels, H height, W width, T tokens, D features of a token, C classes

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from elfnet.errors import RequestError
from elfnet.models.cifar_resnet import initialise_convolutions
from elfnet.models.heads import CLASSIFIERS, exit_head
from elfnet.registry import unknown_name

HEADS = ("auto", "conv", "separable", "mean", "class-token")
HeadBuilder = Callable[[tuple[int, ...]], nn.Module]
ChannelPlace = Literal["auto", "first", "last"]


class TokenHead(nn.Module):
    """Layer norm of every token, their mean (or the first one), classifier; in the classifier's precision.

    Features are tokens (B, T, D), vectors (B, D), or maps with channels first or last, whose places are the tokens.
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
    """A head for features of this shape, without the batch: (K, H, W), (H, W, K), (T, D) or (D,).

    Args:
        head: `conv` and `separable` are the paper's exits for feature maps, at stride 2 and with as many filters as
            channels; `mean` is light and fits every shape; `class-token` reads the first token. `auto`: `separable`
            for maps with the channels first, else `mean`. Or a function from the shape to a module.
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
                "choose head='mean' (or channels='first' if the first number is the channels)"
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
    """Maps are square more often than not, which tells the channels; else they come first, as in torch."""
    if channels not in ("auto", "first", "last"):
        raise unknown_name("channels", channels, ["auto", "first", "last"])
    if len(shape) != 3:
        return False
    if channels != "auto":
        return channels == "first"
    return not (shape[0] == shape[1] != shape[2])
