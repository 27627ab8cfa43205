"""CIFAR ResNets (He et al. 2016): three groups of basic blocks with option-A shortcuts, and their initialisation."""

import itertools

from torch import Tensor, nn
from torch.nn import functional

from elfnet.models.staged import Backbone, BatchNorm2d

GROUP_CHANNELS = (16, 32, 64)
LATE_EXITS = (1, 3, 6, 11)
"""Blocks of the last group after which `late_resnet` has exits; its other groups have two blocks."""


class OptionAShortcut(nn.Module):
    """A shortcut without parameters or multiply-adds: subsample the map and pad new channels with zeros."""

    def __init__(self, new_channels: int, stride: int) -> None:
        super().__init__()
        self.before = new_channels // 2
        self.after = new_channels - self.before
        self.stride = stride

    def forward(self, features: Tensor) -> Tensor:
        return functional.pad(features[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.before, self.after))


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut."""

    def __init__(self, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, stride=stride, padding=1, bias=False)
        self.bn1 = BatchNorm2d(channels_out)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False)
        self.bn2 = BatchNorm2d(channels_out)
        same = stride == 1 and channels_in == channels_out
        self.shortcut = nn.Identity() if same else OptionAShortcut(channels_out - channels_in, stride)

    def forward(self, features: Tensor) -> Tensor:
        inner = functional.relu(self.bn1(self.conv1(features)))
        return functional.relu(self.bn2(self.conv2(inner)) + self.shortcut(features))


def stem(image_channels: int) -> nn.Module:
    """The stem: 3x3 convolution to 16 channels, batch norm, ReLU."""
    channels = GROUP_CHANNELS[0]
    return nn.Sequential(
        nn.Conv2d(image_channels, channels, 3, padding=1, bias=False), BatchNorm2d(channels), nn.ReLU(inplace=True)
    )


def block_group(blocks: int, channels_in: int, channels_out: int) -> nn.Module:
    """A group of basic blocks; the first has stride 2 if the number of channels changes."""
    stride = 1 if channels_in == channels_out else 2
    first = BasicBlock(channels_in, channels_out, stride)
    return nn.Sequential(first, *(BasicBlock(channels_out, channels_out, 1) for _ in range(blocks - 1)))


def cifar_resnet(depth: int, image_channels: int) -> Backbone:
    """A CIFAR ResNet: the stem and three groups of (depth - 2) / 6 blocks."""
    blocks = (depth - 2) // 6
    first, *_ = GROUP_CHANNELS
    groups = [block_group(blocks, c_in, c) for c_in, c in zip((first, *GROUP_CHANNELS), GROUP_CHANNELS, strict=False)]
    return Backbone([stem(image_channels), *groups], [first, *GROUP_CHANNELS])


def late_resnet(image_channels: int) -> Backbone:
    """ResNet-32 of 2, 2 and 11 blocks, with all exits in the last group.

    A block costs the same in every group, so it has the multiply-adds of ResNet-32, whose groups have five blocks
    each. Every exit sees the widest features, where the early exits of ResNet-32 see 16 or 32 channels.
    """
    one, two, four = GROUP_CHANNELS
    stages: list[nn.Module] = [
        nn.Sequential(
            stem(image_channels),
            block_group(2, one, one),
            block_group(2, one, two),
            block_group(LATE_EXITS[0], two, four),
        )
    ]
    stages += [block_group(end - start, four, four) for start, end in itertools.pairwise(LATE_EXITS)]
    return Backbone(stages, [four] * len(LATE_EXITS))


def initialise_convolutions(network: nn.Module) -> None:
    """He initialisation of every convolution in fan-in mode, which keeps the variance of features."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight)
