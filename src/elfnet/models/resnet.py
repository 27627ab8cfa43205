"""ResNets (He et al. 2016) and ResNeXts (Xie et al. 2017) for ImageNet: a stem and four block groups.

Modules have the names of torchvision's published weights. As in torchvision, and unlike in the first paper, the 3x3
convolution of a bottleneck has the stride. The published 4.09 G multiply-adds of ResNet-50 are for this variant.
"""

from collections import OrderedDict
from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional

from elfnet.models.staged import Backbone, BatchNorm2d

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
    """1x1, 3x3 and 1x1 convolutions and a shortcut; ResNeXt splits the 3x3 convolution into groups.

    Args:
        width: a quarter of the number of output channels.
        groups: the groups of the 3x3 convolution.
        group_width: the channels per group in the first block group; doubled in each following one.
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
    """The 1x1 convolution of a shortcut whose shape changes; None if it does not change."""
    if stride == 1 and channels_in == channels_out:
        return None
    return nn.Sequential(nn.Conv2d(channels_in, channels_out, 1, stride=stride, bias=False), BatchNorm2d(channels_out))


def stem(image_channels: int) -> nn.Module:
    """The stem: 7x7 convolution and max pool, each at stride 2."""
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
    """A ResNet or ResNeXt: the stem and four block groups.

    Args:
        blocks: the number of blocks per group.
        bottleneck: whether blocks are bottlenecks instead of basic blocks.
        groups: see `Bottleneck`, as `group_width`.
    """
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
    """He initialisation in fan-out mode, which keeps the variance of gradients; as in torchvision's ResNets."""
    for module in stage.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
