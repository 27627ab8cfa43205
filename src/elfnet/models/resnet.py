"""ResNets (He et al. 2016) and ResNeXts (Xie et al. 2017) for ImageNet: a stem that quarters the image, four groups.

Modules bear the names that torchvision's published weights use. As there, and unlike in the first paper, a bottleneck
strides in its 3x3 convolution, which the published 4.09 G multiply-adds of ResNet-50 include.
"""

from collections import OrderedDict
from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional

from elfnet.models.layers import BatchNorm2d
from elfnet.models.staged import Backbone

GROUP_WIDTHS = (64, 128, 256, 512)
STEM_CHANNELS = 64


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut."""

    expansion = 1

    def __init__(self, channels_in: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, width, 3, stride=stride, padding=1, bias=False)
        self.bn1 = BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = BatchNorm2d(width)
        self.downsample = projection(channels_in, width, stride)

    def forward(self, features: Tensor) -> Tensor:
        inner = functional.relu(self.bn1(self.conv1(features)), inplace=True)
        inner = self.bn2(self.conv2(inner))
        shortcut = features if self.downsample is None else self.downsample(features)
        return functional.relu(inner + shortcut, inplace=True)


class Bottleneck(nn.Module):
    """1x1 down, 3x3, 1x1 up to four times the width, and a shortcut; ResNeXt splits the 3x3 into groups.

    Args:
        width: a quarter of the channels that come out.
        groups: of the 3x3 convolution; above 1 it is `group_width` channels a group wide in the first block group,
            twice that in the second, and so on.
    """

    expansion = 4

    def __init__(self, channels_in: int, width: int, stride: int, groups: int = 1, group_width: int = 64) -> None:
        super().__init__()
        inner = width * group_width // STEM_CHANNELS * groups
        channels_out = width * self.expansion
        self.conv1 = nn.Conv2d(channels_in, inner, 1, bias=False)
        self.bn1 = BatchNorm2d(inner)
        self.conv2 = nn.Conv2d(inner, inner, 3, stride=stride, padding=1, groups=groups, bias=False)
        self.bn2 = BatchNorm2d(inner)
        self.conv3 = nn.Conv2d(inner, channels_out, 1, bias=False)
        self.bn3 = BatchNorm2d(channels_out)
        self.downsample = projection(channels_in, channels_out, stride)

    def forward(self, features: Tensor) -> Tensor:
        inner = functional.relu(self.bn1(self.conv1(features)), inplace=True)
        inner = functional.relu(self.bn2(self.conv2(inner)), inplace=True)
        inner = self.bn3(self.conv3(inner))
        shortcut = features if self.downsample is None else self.downsample(features)
        return functional.relu(inner + shortcut, inplace=True)


def projection(channels_in: int, channels_out: int, stride: int) -> nn.Sequential | None:
    """The shortcut's own 1x1 convolution where the shape changes; None where it does not."""
    if stride == 1 and channels_in == channels_out:
        return None
    return nn.Sequential(nn.Conv2d(channels_in, channels_out, 1, stride=stride, bias=False), BatchNorm2d(channels_out))


def stem(image_channels: int) -> nn.Module:
    """7x7 convolution and max pool, each at stride 2."""
    return nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(image_channels, STEM_CHANNELS, 7, stride=2, padding=3, bias=False),
            bn1=BatchNorm2d(STEM_CHANNELS),
            relu=nn.ReLU(inplace=True),
            maxpool=nn.MaxPool2d(3, stride=2, padding=1),
        )
    )


def imagenet_resnet(
    blocks: Sequence[int], image_channels: int, *, bottleneck: bool, groups: int = 1, group_width: int = 64
) -> Backbone:
    """The stem and the four block groups, `blocks` blocks in each."""
    expansion = Bottleneck.expansion if bottleneck else BasicBlock.expansion

    def block(channels_in: int, width: int, stride: int) -> nn.Module:
        if bottleneck:
            return Bottleneck(channels_in, width, stride, groups, group_width)
        return BasicBlock(channels_in, width, stride)

    channels = [STEM_CHANNELS, *(width * expansion for width in GROUP_WIDTHS)]
    stages = [stem(image_channels)]
    for k, (channels_in, channels_out) in enumerate(pairwise(channels)):
        width = GROUP_WIDTHS[k]
        first = block(channels_in, width, 1 if k == 0 else 2)
        group = nn.Sequential(first, *(block(channels_out, width, 1) for _ in range(blocks[k] - 1)))
        stages.append(nn.Sequential(OrderedDict({f"layer{k + 1}": group})))
    return Backbone(stages, channels)


def initialise_fan_out(stage: nn.Module) -> None:
    """He initialisation that keeps the size of gradients, as torchvision's ResNets start."""
    for module in stage.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
