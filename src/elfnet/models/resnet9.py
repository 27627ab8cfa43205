"""ResNet-9: a wide and shallow network for small images that trains quickly on a CPU; with a stride, for photos.

It has the parts of David Page's ResNet-9 of the DAWNBench competition: eight convolutions, two residual blocks, a
linear classifier. Here it has half of the width, and pools before it widens, because large maps of few channels are
slow on a CPU. At 32 pixels it has the multiply-adds of ResNet-20 (39 million), and its third exit has 0.41 of them.
With a stride of 2 in the first convolution it has 87 million at 96 pixels, a quarter of those of ResNet-18.
"""

from collections import OrderedDict

from torch import Tensor, nn

from elfnet.models.staged import Backbone, BatchNorm2d

WIDTH = 32
"""Channels of the first convolution; the last has eight times as many."""


def convolution(channels_in: int, channels_out: int, *, stride: int = 1, pool: bool = False) -> nn.Sequential:
    """A 3x3 convolution, batch norm and ReLU; then a maximum over 2 x 2 pixels, if wanted."""
    layers: list[nn.Module] = [
        nn.Conv2d(channels_in, channels_out, 3, stride=stride, padding=1, bias=False),
        BatchNorm2d(channels_out),
        nn.ReLU(inplace=True),
    ]
    return nn.Sequential(*layers, nn.MaxPool2d(2)) if pool else nn.Sequential(*layers)


class ResidualBlock(nn.Module):
    """Two convolutions, each with batch norm and ReLU, and a shortcut around both."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(convolution(channels, channels), convolution(channels, channels))

    def forward(self, features: Tensor) -> Tensor:
        inner: Tensor = self.convolutions(features)
        return features + inner


def resnet9(image_channels: int, *, stride: int = 1) -> Backbone:
    """ResNet-9 with exits after the second and third convolution and after each residual block.

    Args:
        stride: that of the first convolution.
    """
    one, two, four, eight = (WIDTH * factor for factor in (1, 2, 4, 8))
    stages: list[nn.Module] = [
        _named(
            conv1=convolution(image_channels, one, stride=stride, pool=True), conv2=convolution(one, two, pool=True)
        ),
        _named(conv3=convolution(two, four, pool=True)),
        _named(block1=ResidualBlock(four)),
        _named(conv4=convolution(four, eight), block2=ResidualBlock(eight)),
    ]
    return Backbone(stages, [two, four, four, eight])


def _named(**modules: nn.Module) -> nn.Sequential:
    return nn.Sequential(OrderedDict(modules))
