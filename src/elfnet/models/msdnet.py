"""MSDNet (Huang et al. 2018) for small images: dense layers at three scales in parallel, with exits on the coarsest.

Every layer adds channels to every scale, computed from that scale and from the finer one. So the coarsest scale, which
the exits read, exists from the first layer on. After each third of the layers the finest scale is dropped and the
number of channels is halved. Stages pass the maps of all scales as one packed tensor (`Packing`).
"""

# Shapes: B batch, L length of a packed row, K channels, S side

import math
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from elfnet.errors import RequestError
from elfnet.models.heads import Head
from elfnet.models.staged import Backbone, BatchNorm2d

FACTORS = (1, 2, 4)
"""The factor of each scale, finest first, for its channels, its growth and the width of its bottlenecks."""
FIRST_CHANNELS = 16
GROWTH = 6
BLOCKS = 7
FIRST_BLOCK_LAYERS, BLOCK_LAYERS = 4, 2
"""As in the authors' CIFAR networks: a classifier after 4 layers, then one after every 2."""
CLASSIFIER_FILTERS = 128


@dataclass(frozen=True)
class Packing:
    """Packs square maps of several scales into one row per example.

    The side of each map is half that of the one before, rounded up. A row has the memory layout of the maps, so nothing
    is transposed: channels_last in torch, channels first in exported graphs (with ONNX Runtime at batch 64 this takes
    1.07 instead of 1.19 times the time of a network that packs nothing). Rows of the two layouts are never mixed.

    Attributes:
        channels: the number of channels of each map, the finest first.

    Example:
        >>> packing = Packing((1, 2))
        >>> packing.pack([torch.zeros(5, 1, 8, 8), torch.zeros(5, 2, 4, 4)]).shape
        torch.Size([5, 96])
    """

    channels: tuple[int, ...]

    def pack(self, maps: Sequence[Tensor]) -> Tensor:
        """Pack the maps (B, K, S, S) of all scales into rows (B, L)."""
        rows = [_as_row(features) for features in maps]
        return rows[0] if len(rows) == 1 else torch.cat(rows, dim=1)

    def unpack(self, packed_BL: Tensor) -> list[Tensor]:
        """Unpack the maps of all scales; in the channels_last layout, except in exported graphs."""
        sides = self._sides(packed_BL.shape[1])
        lengths = [channels * side * side for channels, side in zip(self.channels, sides, strict=True)]
        rows = torch.split_with_sizes(packed_BL, lengths, dim=1)
        return [_as_map(row, channels, side) for row, channels, side in zip(rows, self.channels, sides, strict=True)]

    def coarsest(self, packed_BL: Tensor) -> Tensor:
        """Unpack the coarsest map only."""
        channels, side = self.channels[-1], self._sides(packed_BL.shape[1])[-1]
        return _as_map(packed_BL[:, -channels * side * side :], channels, side)

    def _sides(self, length: int) -> list[int]:
        """The sides of the maps in a row of `length` numbers, as integers, which become constants of graphs.

        Found by bisection: torch.compile can trace comparisons of a symbolic length, but not a square root.
        """
        low, high = 0, 1
        while self._length(high) < length:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._length(middle) < length else (low, middle)
        assert self._length(high) == length, f"a row of {length} numbers holds no square maps of {self.channels}"
        return _sides_per_scale(high, len(self.channels))

    def _length(self, finest: int) -> int:
        return sum(
            k * side * side for k, side in zip(self.channels, _sides_per_scale(finest, len(self.channels)), strict=True)
        )


def _sides_per_scale(side: int, scales: int) -> list[int]:
    """The sides after 0, 1, 2, ... convolutions of stride 2."""
    return [-(-side // 2**s) for s in range(scales)]


def _as_row(features: Tensor) -> Tensor:
    return features.flatten(1) if torch.compiler.is_exporting() else features.permute(0, 2, 3, 1).flatten(1)


def _as_map(row_BL: Tensor, channels: int, side: int) -> Tensor:
    if torch.compiler.is_exporting():
        return row_BL.view(row_BL.shape[0], channels, side, side)
    return row_BL.view(row_BL.shape[0], side, side, channels).permute(0, 3, 1, 2)


class Coarsest(nn.Module):
    """Unpacks the coarsest map, which an exit reads."""

    def __init__(self, packing: Packing) -> None:
        super().__init__()
        self.packing = packing

    def forward(self, packed_BL: Tensor) -> Tensor:
        return self.packing.coarsest(packed_BL)


@dataclass(frozen=True)
class PackedBackbone(Backbone):
    """A backbone whose stages return packed maps, except the last, which returns one map.

    `channels[k]` is the number of channels of the coarsest map, which the exit of stage k reads.

    Attributes:
        packings: the packing of the output of each stage except the last.
    """

    packings: list[Packing]

    def adapt_heads(self, heads: Sequence[Head]) -> list[Head]:
        """Make early heads for single maps read packed maps."""
        return [
            Head(nn.Sequential(OrderedDict(coarsest=Coarsest(packing), convolutions=head.trunk)), head.classifier)
            for head, packing in zip(heads, self.packings, strict=True)
        ]


def convolution(channels_in: int, channels_out: int, size: int, stride: int = 1) -> nn.Sequential:
    """Padded convolution, batch norm, ReLU."""
    return nn.Sequential(
        nn.Conv2d(channels_in, channels_out, size, stride=stride, padding=size // 2, bias=False),
        BatchNorm2d(channels_out),
        nn.ReLU(inplace=True),
    )


def bottleneck(channels_in: int, channels_out: int, width: int, stride: int) -> nn.Sequential:
    """A 1x1 convolution to at most `width` x channels_out channels, then a 3x3 convolution."""
    inner = min(channels_in, width * channels_out)
    return nn.Sequential(*convolution(channels_in, inner, 1), *convolution(inner, channels_out, 3, stride))


class FirstLayer(nn.Module):
    """Computes the first map of every scale from square images; each scale from the finer one."""

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
                f"images of {height} x {width} pixels are not square, and an MSDNet needs square ones; use square "
                "images, or another model.backbone"
            )
        maps, features = [], images
        for scale in self.scales:
            features = scale(features)
            maps.append(features)
        return maps


class NewChannels(nn.Module):
    """The channels that a layer adds to one scale: half from the finer scale at stride 2, or all from this scale."""

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
    """Adds channels to the scales from `scale` on, and may drop the next finer one.

    Args:
        channels: the number of input channels divided by the factor: scale s has channels x FACTORS[s].
        scale: the finest scale of the output.
        drops_finer: whether the input has one finer scale, which the output does not have.
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
    """1x1 convolutions that change the number of channels of every scale by the same factor."""

    def __init__(self, channels_in: int, channels_out: int, scale: int) -> None:
        super().__init__()
        self.scales = nn.ModuleList(convolution(channels_in * f, channels_out * f, 1) for f in FACTORS[scale:])

    def forward(self, maps: list[Tensor]) -> list[Tensor]:
        return [reduce(features) for reduce, features in zip(self.scales, maps, strict=True)]


class Block(nn.Module):
    """The layers between two exits: maps packed maps (images, for the first block) to packed maps.

    The last block ends with the convolutions of the last classifier and returns one map.
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
    """An MSDNet: the first layer and `blocks` blocks, with an exit on the coarsest scale after each block."""
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
        # Named blocks, so that the names of weights are unique without the index of the stage.
        stages.append(nn.Sequential(OrderedDict([(f"block{k + 1}", block)])))
        packings.append(packing)
    channels = [*(packing.channels[-1] for packing in packings[:-1]), CLASSIFIER_FILTERS]
    return PackedBackbone(stages, channels, packings[:-1])


def _layers(count: int) -> Iterator[tuple[list[nn.Module], tuple[int, ...]]]:
    """Yield each layer with its reduction, if it has one, and the number of channels of each scale of the output."""
    layers_per_scale = math.ceil(count / len(FACTORS))
    channels = FIRST_CHANNELS
    for index in range(count):
        scale = index // layers_per_scale
        drops_finer = index > 0 and index % layers_per_scale == 0
        parts: list[nn.Module] = [Layer(channels, scale, drops_finer=drops_finer)]
        channels += GROWTH
        if drops_finer:
            parts.append(Reduction(channels, channels // 2, scale))
            channels //= 2
        yield parts, tuple(channels * factor for factor in FACTORS[scale:])
