"""DenseNets (Huang et al. 2017) for ImageNet: four dense blocks of growth 32 with transitions between them.

Modules have the names of torchvision's published weights. There is an exit before each dense block; it reads the output
of the stem or of a transition.
"""

from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from elfnet.errors import RequestError
from elfnet.models.staged import Backbone, BatchNorm2d

GROWTH = 32
BOTTLENECK = 4 * GROWTH
STEM_CHANNELS = 64
# The stem divides the side by 4, rounding up. Three transitions halve it, rounding down. One pixel must remain.
SMALLEST_IMAGE = 4 * 2**3 - 3


class DenseLayer(nn.Module):
    """Batch norm, ReLU and convolution, twice (1x1, then 3x3); the result is concatenated to the input."""

    def __init__(self, channels_in: int) -> None:
        super().__init__()
        self.norm1 = BatchNorm2d(channels_in)
        self.conv1 = nn.Conv2d(channels_in, BOTTLENECK, 1, bias=False)
        self.norm2 = BatchNorm2d(BOTTLENECK)
        self.conv2 = nn.Conv2d(BOTTLENECK, GROWTH, 3, padding=1, bias=False)

    def forward(self, features: Tensor) -> Tensor:
        inner = self.conv1(functional.relu(self.norm1(features), inplace=True))
        new = self.conv2(functional.relu(self.norm2(inner), inplace=True))
        return torch.cat([features, new], dim=1)


class Stem(nn.Sequential):
    """The stem: 7x7 convolution and max pool, each at stride 2; refuses images that are too small for the network."""

    def __init__(self, image_channels: int) -> None:
        super().__init__(
            OrderedDict(
                conv0=nn.Conv2d(image_channels, STEM_CHANNELS, 7, stride=2, padding=3, bias=False),
                norm0=BatchNorm2d(STEM_CHANNELS),
                relu0=nn.ReLU(inplace=True),
                pool0=nn.MaxPool2d(3, stride=2, padding=1),
            )
        )

    def forward(self, images: Tensor) -> Tensor:
        height, width = images.shape[2:]
        if min(height, width) < SMALLEST_IMAGE:
            raise RequestError(
                f"images of {height} x {width} pixels are too small for a DenseNet, which needs at least "
                f"{SMALLEST_IMAGE} x {SMALLEST_IMAGE}; use larger images, or another model.backbone"
            )
        features = images
        for layer in self:
            features = layer(features)
        return features


def dense_block(layers: int, channels_in: int) -> nn.Sequential:
    """A block of dense layers; its output has channels_in + 32 x layers channels."""
    return nn.Sequential(
        OrderedDict({f"denselayer{i + 1}": DenseLayer(channels_in + i * GROWTH) for i in range(layers)})
    )


def transition(channels_in: int, channels_out: int) -> nn.Sequential:
    """A transition: batch norm, ReLU, 1x1 convolution, 2x2 average pool."""
    return nn.Sequential(
        OrderedDict(
            norm=BatchNorm2d(channels_in),
            relu=nn.ReLU(inplace=True),
            conv=nn.Conv2d(channels_in, channels_out, 1, bias=False),
            pool=nn.AvgPool2d(2),
        )
    )


def densenet(layers: Sequence[int], image_channels: int) -> Backbone:
    """A DenseNet: the stem, then one stage per dense block with its transition (batch norm and ReLU for the last).

    Args:
        layers: the number of dense layers per block.
    """
    stages: list[nn.Module] = [_with_prefix(Stem(image_channels))]
    channels = [STEM_CHANNELS]
    for k, count in enumerate(layers, start=1):
        grown = channels[-1] + count * GROWTH
        parts: dict[str, nn.Module] = {f"denseblock{k}": dense_block(count, channels[-1])}
        if k < len(layers):
            parts[f"transition{k}"] = transition(grown, grown // 2)
            channels.append(grown // 2)
        else:
            parts |= {"norm5": BatchNorm2d(grown), "relu5": nn.ReLU(inplace=True)}
            channels.append(grown)
        stages.append(_with_prefix(nn.Sequential(OrderedDict(parts))))
    return Backbone(stages, channels)


def _with_prefix(stage: nn.Module) -> nn.Module:
    """Put a stage under the name `features`, which is the prefix of published names."""
    return nn.Sequential(OrderedDict(features=stage))


def zero_bias(classifier: nn.Linear) -> None:
    """Initialise a linear classifier as torchvision does for DenseNets: torch's default weights, zero bias."""
    nn.Linear.reset_parameters(classifier)
    nn.init.zeros_(classifier.bias)
