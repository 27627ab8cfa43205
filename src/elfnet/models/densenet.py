"""DenseNets (Huang et al. 2017) for ImageNet: four dense blocks of growth 32, transitions between them.

Modules bear the names that torchvision's published weights use. An exit sits before each dense block, so it reads the
stem's output or a transition's.
"""

from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from elfnet.errors import RequestError
from elfnet.models.layers import BatchNorm2d
from elfnet.models.staged import Backbone

GROWTH = 32
BOTTLENECK = 4 * GROWTH
STEM_CHANNELS = 64
# The stem quarters the image, rounding up; three transitions halve it, rounding down; one pixel must be left.
SMALLEST_IMAGE = 4 * 2**3 - 3


class DenseLayer(nn.Module):
    """Batch norm, ReLU and convolution twice, 1x1 and 3x3; its output is appended to what it read."""

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
    """7x7 convolution and max pool, each at stride 2; refuses images that the transitions would shrink to nothing."""

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
    """`layers` dense layers; channels_in + 32 x layers channels come out."""
    return nn.Sequential(
        OrderedDict({f"denselayer{i + 1}": DenseLayer(channels_in + i * GROWTH) for i in range(layers)})
    )


def transition(channels_in: int, channels_out: int) -> nn.Sequential:
    """Batch norm, ReLU, 1x1 convolution and a 2x2 average pool."""
    return nn.Sequential(
        OrderedDict(
            norm=BatchNorm2d(channels_in),
            relu=nn.ReLU(inplace=True),
            conv=nn.Conv2d(channels_in, channels_out, 1, bias=False),
            pool=nn.AvgPool2d(2),
        )
    )


def densenet(layers: Sequence[int], image_channels: int) -> Backbone:
    """The stem, then each dense block with the transition behind it (batch norm and ReLU behind the last)."""
    stages: list[nn.Module] = [_features(Stem(image_channels))]
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
        stages.append(_features(nn.Sequential(OrderedDict(parts))))
    return Backbone(stages, channels)


def _features(stage: nn.Module) -> nn.Module:
    """Published names begin with `features.`, in every stage."""
    return nn.Sequential(OrderedDict(features=stage))


def zero_bias(classifier: nn.Linear) -> None:
    """A linear classifier as torchvision's DenseNets start: torch's own draw, no bias."""
    nn.Linear.reset_parameters(classifier)
    nn.init.zeros_(classifier.bias)
