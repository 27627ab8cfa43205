"""Heads: modules that map the features of a stage to logits, and the classifiers in them.

A head is an optional convolutional trunk, a global average pool and a classifier. The trunk runs in the precision of
the backbone, since it is most of the cost of the head. Pool and classifier always run in float32, so logits, confidence
and loss do not depend on the precision of the backbone.
"""

# Shapes: B batch, F features, C classes

import torch
from torch import Tensor, nn
from torch.nn import functional

from elfnet.models.staged import BatchNorm2d, Trunk
from elfnet.registry import Registry

GRID, GRID_DROPOUT = 4, 0.3
"""Pixels per side that a head of kind `grid` sees, and the share of its inputs that is set to 0 in training."""


class LinearClassifier(nn.Linear):
    """A linear classifier with weights and bias, initialised by He's method."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__(features, classes)
        nn.init.kaiming_normal_(self.weight)


class ScaledClassifier(LinearClassifier):
    """A linear classifier with one scale per class: scale_C * (W f + b). LWS trains the scales only."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__(features, classes)
        self.scale = nn.Parameter(torch.ones(classes))

    def forward(self, features_BF: Tensor) -> Tensor:
        return self.scale * super().forward(features_BF)


class CosineClassifier(nn.Module):
    """The cosine between features and class weights, in [-1, 1]; no bias, and no scale, which the loss owns."""

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
    """A head: trunk, global average pool and classifier; returns logits in float32, or float64 if the weights are.

    Args:
        trunk: maps feature maps to feature maps; `nn.Identity` for none.
        classifier: maps pooled features (B, F) to logits (B, C).
    """

    def __init__(self, trunk: nn.Module, classifier: nn.Module) -> None:
        super().__init__()
        self.trunk = trunk
        self.classifier = classifier

    def forward(self, features: Tensor) -> Tensor:
        """Map features (B, F, H, W) to logits (B, C)."""
        return self.classify(self.trunk(features))

    def classify(self, features: Tensor) -> Tensor:
        """Map the output of the trunk to logits (B, C): pool and classifier."""
        # The meta device does not support autocast. Costs can be counted on it without computing anything.
        device = "cpu" if features.is_meta else features.device.type
        with torch.autocast(device_type=device, enabled=False):
            # Under autocast the weights stay in float32, unless the whole network was moved to another dtype.
            logits_BC: Tensor = self.classifier(features.to(self._classifier_dtype()).mean(dim=(2, 3)))
        return logits_BC.float() if logits_BC.dtype in (torch.float16, torch.bfloat16) else logits_BC

    def _classifier_dtype(self) -> torch.dtype:
        weight = next(self.classifier.parameters(), None)
        return torch.float32 if weight is None else weight.dtype


def final_head(channels: int, classes: int, *, kind: str) -> Head:
    """The head of the last exit: pool and classifier, without convolutions."""
    return Head(nn.Identity(), CLASSIFIERS[kind](channels, classes))


def exit_head(
    channels: int,
    classes: int,
    *,
    kind: str,
    filters: int,
    stride: int,
    trunk: Trunk = "conv",
) -> Head:
    """The head of an early exit: a trunk, pool and classifier.

    The trunk of the paper is two 3x3 convolutions, with batch norm and ReLU after each (`conv`). `separable` is the
    same with depthwise-separable convolutions. `grid` averages the map to 4 x 4 pixels, where dropout and one
    convolution over all of them follow: a hidden layer that sees where things are. It suits networks whose maps are
    small where exits are.

    The paper does not state the stride. At stride 1 the first exit of ResNet-32 alone costs 0.69 of the plain network,
    which leaves little to save, so the default of recipes is 2.

    Args:
        channels: the number of input channels.
        kind: the kind of the classifier.
        filters: the number of filters of the convolutions.
        stride: the stride of each convolution of `conv` and `separable`.
        trunk: `conv`, `separable` or `grid`; `none` for pool and classifier only, such as for feature vectors.
    """
    if trunk == "none":
        return final_head(channels, classes, kind=kind)
    if trunk == "grid":
        return Head(_grid(channels, filters), CLASSIFIERS[kind](filters, classes))
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


def _grid(channels: int, filters: int) -> nn.Sequential:
    """Average a map to a grid of pixels, then a fully connected hidden layer on it, written as a convolution."""
    return nn.Sequential(
        nn.AdaptiveAvgPool2d(GRID),
        nn.Dropout(GRID_DROPOUT),
        nn.Conv2d(channels, filters, GRID),
        nn.ReLU(inplace=True),
    )


def _convolution(channels: int, filters: int, stride: int) -> list[nn.Module]:
    return [nn.Conv2d(channels, filters, 3, stride=stride, padding=1, bias=False)]


def _separable_convolution(channels: int, filters: int, stride: int) -> list[nn.Module]:
    """A 3x3 convolution per channel, then a 1x1 convolution. They replace one convolution, so nothing is between."""
    return [
        nn.Conv2d(channels, channels, 3, stride=stride, padding=1, groups=channels, bias=False),
        nn.Conv2d(channels, filters, 1, bias=False),
    ]
