"""MSDNet (Huang et al. 2018) for small images: dense layers at three scales side by side, and classifiers on the way.

Every layer adds channels to every scale, from that scale and from the finer one, so that the coarsest scale, which the
classifiers read, is there from the first layer on. Behind each third of the layers the finest scale is given up and
the channels are halved.
"""

import math
from collections import OrderedDict
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from elfnet.errors import RequestError
from elfnet.models.architecture import Backbone
from elfnet.models.batch_norm import BatchNorm2d
from elfnet.models.packed_scales import PackedBackbone, Packing

FACTORS = (1, 2, 4)
"""Of each scale, finest first: its channels, its growth and the width of its bottlenecks, in units of the finest."""
FIRST_CHANNELS = 16
GROWTH = 6
BLOCKS = 7
FIRST_BLOCK_LAYERS, BLOCK_LAYERS = 4, 2
"""As the authors' CIFAR networks: a classifier behind 4 layers, then one behind every 2."""
CLASSIFIER_FILTERS = 128


def convolution(channels_in: int, channels_out: int, size: int, stride: int = 1) -> nn.Sequential:
    """Convolution that keeps the map but for its stride, batch norm, ReLU."""
    return nn.Sequential(
        nn.Conv2d(channels_in, channels_out, size, stride=stride, padding=size // 2, bias=False),
        BatchNorm2d(channels_out),
        nn.ReLU(inplace=True),
    )


def bottleneck(channels_in: int, channels_out: int, width: int, stride: int) -> nn.Sequential:
    """1x1 to at most `width` x channels_out channels, then 3x3."""
    inner = min(channels_in, width * channels_out)
    return nn.Sequential(*convolution(channels_in, inner, 1), *convolution(inner, channels_out, 3, stride))


class FirstLayer(nn.Module):
    """From square images to the first map of every scale, each from the one before."""

    def __init__(self, image_channels: int) -> None:
        super().__init__()
        channels = [image_channels, *(FIRST_CHANNELS * factor for factor in FACTORS)]
        self.scales = nn.ModuleList(
            convolution(channels[s], channels[s + 1], 3, stride=1 if s == 0 else 2) for s in range(len(FACTORS))
        )

    def forward(self, images: Tensor) -> list[Tensor]:
        height, width = images.shape[2:]
        if height != width:
            raise RequestError(
                f"images of {height} x {width} pixels are not square, which an MSDNet needs; use square images, or "
                "another model.backbone"
            )
        maps, features = [], images
        for scale in self.scales:
            features = scale(features)
            maps.append(features)
        return maps


class NewChannels(nn.Module):
    """What a layer adds to one scale: half of it from the finer scale at stride 2, or all from the scale itself."""

    def __init__(self, channels: int, scale: int, *, from_finer: bool) -> None:
        super().__init__()
        grown = GROWTH * FACTORS[scale]
        here, finer = channels * FACTORS[scale], channels * FACTORS[scale - 1]
        half = grown // 2 if from_finer else 0
        self.finer = bottleneck(finer, half, FACTORS[scale - 1], stride=2) if from_finer else None
        self.here = bottleneck(here, grown - half, FACTORS[scale], stride=1)

    def forward(self, finer: Tensor | None, here: Tensor) -> list[Tensor]:
        return [self.here(here)] if self.finer is None else [self.finer(finer), self.here(here)]


class Layer(nn.Module):
    """Adds channels to the scales from `scale` on; a finer one that comes in is read for the last time.

    Args:
        channels: of the finest scale when it comes in (in units: scale s has channels x FACTORS[s]).
        scale: the finest that goes out.
        drops_finer: whether the one above it still comes in.
    """

    def __init__(self, channels: int, scale: int, *, drops_finer: bool) -> None:
        super().__init__()
        self.drops_finer = drops_finer
        self.scales = nn.ModuleList(
            NewChannels(channels, s, from_finer=drops_finer or s > scale) for s in range(scale, len(FACTORS))
        )

    def forward(self, maps: list[Tensor]) -> list[Tensor]:
        finer = maps[:-1] if self.drops_finer else [None, *maps[:-1]]
        here = maps[1:] if self.drops_finer else maps
        return [
            torch.cat([features, *new(above, features)], dim=1)
            for new, above, features in zip(self.scales, finer, here, strict=True)
        ]


class Reduction(nn.Module):
    """1x1 convolutions that change the number of channels of every scale alike."""

    def __init__(self, channels_in: int, channels_out: int, scale: int) -> None:
        super().__init__()
        self.scales = nn.ModuleList(convolution(channels_in * f, channels_out * f, 1) for f in FACTORS[scale:])

    def forward(self, maps: list[Tensor]) -> list[Tensor]:
        return [reduce(features) for reduce, features in zip(self.scales, maps, strict=True)]


class Block(nn.Module):
    """Layers between two classifiers: packed maps (images, for the first) to packed maps.

    The last block ends in the convolutions of the network's own classifier, and gives a map to pool and classify.
    """

    def __init__(self, layers: list[nn.Module], packed_in: Packing | None, packed_out: Packing, *, last: bool) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)
        self.packed_in, self.packed_out = packed_in, packed_out
        filters = CLASSIFIER_FILTERS
        self.classifier = (
            nn.Sequential(*convolution(packed_out.channels[-1], filters, 3, 2), *convolution(filters, filters, 3, 2))
            if last
            else None
        )

    def forward(self, features: Tensor) -> Tensor:
        maps: list[Tensor] = self.layers(features if self.packed_in is None else self.packed_in.unpack(features))
        if self.classifier is None:
            return self.packed_out.pack(maps)
        coarsest: Tensor = self.classifier(maps[-1])
        return coarsest


def msdnet(image_channels: int, *, blocks: int = BLOCKS) -> Backbone:
    """The first layer and `blocks` blocks; an exit reads the coarsest scale behind each."""
    stages: list[nn.Module] = []
    packings: list[Packing] = []
    layers = _layers(FIRST_BLOCK_LAYERS + (blocks - 1) * BLOCK_LAYERS)
    for k in range(blocks):
        parts: list[nn.Module] = [] if stages else [FirstLayer(image_channels)]
        for _ in range(BLOCK_LAYERS if stages else FIRST_BLOCK_LAYERS):
            new, channels_out = next(layers)
            parts += new
        packing = Packing(channels_out)
        block = Block(parts, packings[-1] if packings else None, packing, last=k == blocks - 1)
        # Named, so that the weights of each block have a name of their own outside the stages, too.
        stages.append(nn.Sequential(OrderedDict([(f"block{k + 1}", block)])))
        packings.append(packing)
    channels = [*(packing.channels[-1] for packing in packings[:-1]), CLASSIFIER_FILTERS]
    return PackedBackbone(stages, channels, packings[:-1])


def _layers(count: int) -> Iterator[tuple[list[nn.Module], tuple[int, ...]]]:
    """Each layer, with the reduction behind it if there is one, and the channels of the scales that go out."""
    a_third = math.ceil(count / len(FACTORS))
    channels = FIRST_CHANNELS
    for index in range(count):
        scale = index // a_third
        drops_finer = index > 0 and index % a_third == 0
        parts: list[nn.Module] = [Layer(channels, scale, drops_finer=drops_finer)]
        channels += GROWTH
        if drops_finer:
            parts.append(Reduction(channels, channels // 2, scale))
            channels //= 2
        yield parts, tuple(channels * factor for factor in FACTORS[scale:])
