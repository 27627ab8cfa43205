"""Networks by name, from plain arguments."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from elfnet.models.cifar_resnet import GROUP_CHANNELS, block_group, initialise_convolutions, stem
from elfnet.models.heads import exit_head, final_head
from elfnet.models.staged import StagedNetwork
from elfnet.registry import Registry


@dataclass(frozen=True)
class Backbone:
    """A backbone cut where exits may sit: stage k's output has `channels[k]` channels."""

    stages: list[nn.Module]
    channels: list[int]


BACKBONES: Registry[Callable[[int], Backbone]] = Registry("model.backbone")


def _cifar_resnet(depth: int) -> Callable[[int], Backbone]:
    blocks = (depth - 2) // 6

    def build(image_channels: int) -> Backbone:
        first, *_ = GROUP_CHANNELS
        groups = [
            block_group(blocks, c_in, c) for c_in, c in zip((first, *GROUP_CHANNELS), GROUP_CHANNELS, strict=False)
        ]
        return Backbone([stem(image_channels), *groups], [first, *GROUP_CHANNELS])

    return build


for _depth in (8, 14, 20, 32, 44, 56):
    BACKBONES.register(f"resnet{_depth}")(_cifar_resnet(_depth))


def build_network(
    backbone: str,
    *,
    classes: int,
    image_channels: int = 3,
    exits: bool = True,
    head: str = "linear",
    head_filters: int = 64,
    head_stride: int = 2,
) -> StagedNetwork:
    """A backbone with the paper's exits (one before each block group, and the last), or plain with `exits=False`.

    Example:
        >>> build_network("resnet32", classes=10).exits
        4
    """
    cut = BACKBONES[backbone](image_channels)
    last = final_head(cut.channels[-1], classes, kind=head)
    if exits:
        early = [
            exit_head(channels, classes, kind=head, filters=head_filters, stride=head_stride)
            for channels in cut.channels[:-1]
        ]
        network = StagedNetwork(cut.stages, [*early, last], classes=classes)
    else:
        network = StagedNetwork([nn.Sequential(*cut.stages)], [last], classes=classes)
    initialise_convolutions(network)
    return network
