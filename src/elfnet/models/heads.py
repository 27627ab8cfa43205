"""Heads: what maps a stage's features to logits.

A head is an optional convolutional trunk, a global average pool and a classifier. The trunk runs in the backbone's
precision, since it is most of the head's cost; pooling and classifier always run in float32, so that logits,
confidence and loss do not depend on the precision chosen for the backbone.
"""

# Shapes: B batch, F features, C classes

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from elfnet.models.layers import BatchNorm2d
from elfnet.registry import Registry


class LinearClassifier(nn.Linear):
    """The ordinary classifier: weights and a bias."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__(features, classes)
        nn.init.kaiming_normal_(self.weight)


class ScaledClassifier(LinearClassifier):
    """A linear classifier times a scale a class: scale_C * (W f + b). LWS learns the scales and nothing else."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__(features, classes)
        self.scale = nn.Parameter(torch.ones(classes))

    def forward(self, features_BF: Tensor) -> Tensor:
        return self.scale * super().forward(features_BF)


class CosineClassifier(nn.Module):
    """Cosine between features and class directions, in [-1, 1]; no bias and no scale (the loss owns the scale)."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(classes, features))
        nn.init.normal_(self.weight)
        with torch.no_grad():
            self.weight.copy_(functional.normalize(self.weight, dim=1))

    def forward(self, features_BF: Tensor) -> Tensor:
        return functional.linear(functional.normalize(features_BF, dim=1), functional.normalize(self.weight, dim=1))


CLASSIFIERS: Registry[type[LinearClassifier] | type[CosineClassifier]] = Registry("model.head")
CLASSIFIERS.register("linear")(LinearClassifier)
CLASSIFIERS.register("cosine")(CosineClassifier)
CLASSIFIERS.register("scaled")(ScaledClassifier)


class Head(nn.Module):
    """Trunk (may be empty), global average pool, classifier; logits in float32, or float64 if the weights are."""

    def __init__(self, trunk: nn.Module, classifier: nn.Module) -> None:
        super().__init__()
        self.trunk = trunk
        self.classifier = classifier

    def forward(self, features: Tensor) -> Tensor:
        """Logits (B, C) of a feature map (B, F, H, W)."""
        features = self.trunk(features)
        # The meta device, on which costs can be counted without computing anything, knows no autocast.
        device = "cpu" if features.is_meta else features.device.type
        with torch.autocast(device_type=device, enabled=False):
            # The weights are in float32 whatever autocast does, unless the whole network was moved to another type.
            logits_BC: Tensor = self.classifier(features.to(self._dtype()).mean(dim=(2, 3)))
        return logits_BC.float() if logits_BC.dtype in (torch.float16, torch.bfloat16) else logits_BC

    def _dtype(self) -> torch.dtype:
        weight = next(self.classifier.parameters(), None)
        return torch.float32 if weight is None else weight.dtype


def final_head(channels: int, classes: int, *, kind: str) -> Head:
    """The backbone's own classifier: pool and classify."""
    return Head(nn.Identity(), CLASSIFIERS[kind](channels, classes))


def exit_head(
    channels: int,
    classes: int,
    *,
    kind: str,
    filters: int,
    stride: int,
    trunk: Literal["conv", "separable", "none"] = "conv",
) -> Head:
    """The paper's auxiliary exit: two 3x3 convolutions (batch norm and ReLU after each), pool, classifier.

    Without a trunk it is the pool and the classifier, as where there is no picture to convolve.

    The paper does not give the stride. At stride 1 the first exit of ResNet-32 alone costs 0.69 of the plain network,
    so that hardly anything can be saved; stride 2 is our default.
    """
    if trunk == "none":
        return final_head(channels, classes, kind=kind)
    convolution = _convolution if trunk == "conv" else _separable_convolution
    layers = nn.Sequential(
        *convolution(channels, filters, stride),
        BatchNorm2d(filters),
        nn.ReLU(inplace=True),
        *convolution(filters, filters, stride),
        BatchNorm2d(filters),
        nn.ReLU(inplace=True),
    )
    return Head(layers, CLASSIFIERS[kind](filters, classes))


def _convolution(channels: int, filters: int, stride: int) -> list[nn.Module]:
    return [nn.Conv2d(channels, filters, 3, stride=stride, padding=1, bias=False)]


def _separable_convolution(channels: int, filters: int, stride: int) -> list[nn.Module]:
    """3x3 within each channel, then 1x1 across them. The two stand for one convolution, so nothing is between them."""
    return [
        nn.Conv2d(channels, channels, 3, stride=stride, padding=1, groups=channels, bias=False),
        nn.Conv2d(channels, filters, 1, bias=False),
    ]
