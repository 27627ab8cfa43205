"""Feature maps of several scales in one tensor.

Stages hand on one tensor, whose rows are what training drops, adaptive inference keeps and ONNX graphs read. A
network with a map for every scale packs its maps into one row an example, and the next stage unpacks them.
"""

# Shapes: B batch, L numbers of an example in all maps, K channels, S side

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from elfnet.models.architecture import Backbone
from elfnet.models.heads import Head


@dataclass(frozen=True)
class Packing:
    """How square maps lie in a row, each of half the side of the one before, rounded up.

    A map lies in its row as torch has it in memory, in the channels_last layout: nothing is transposed on the way. In
    exported graphs, whose maps lie channel by channel, so do the rows (ONNX Runtime: 1.07 instead of 1.19 times the
    time of a network that packs nothing, at batch 64). Rows never go from the one to the other.

    Attributes:
        channels: of every map, the finest first.

    Example:
        >>> packing = Packing((1, 2))
        >>> packing.pack([torch.zeros(5, 1, 8, 8), torch.zeros(5, 2, 4, 4)]).shape
        torch.Size([5, 96])
    """

    channels: tuple[int, ...]

    def pack(self, maps: Sequence[Tensor]) -> Tensor:
        """(B, K, S, S) of every scale into (B, L)."""
        rows = [_as_row(features) for features in maps]
        return rows[0] if len(rows) == 1 else torch.cat(rows, dim=1)

    def unpack(self, packed_BL: Tensor) -> list[Tensor]:
        """The maps; outside exported graphs they are in the channels_last layout."""
        sides = self._sides(packed_BL.shape[1])
        lengths = [channels * side * side for channels, side in zip(self.channels, sides, strict=True)]
        rows = torch.split_with_sizes(packed_BL, lengths, dim=1)
        return [_as_map(row, channels, side) for row, channels, side in zip(rows, self.channels, sides, strict=True)]

    def coarsest(self, packed_BL: Tensor) -> Tensor:
        """The last map only."""
        channels, side = self.channels[-1], self._sides(packed_BL.shape[1])[-1]
        return _as_map(packed_BL[:, -channels * side * side :], channels, side)

    def _sides(self, length: int) -> list[int]:
        """Sides of the maps in a row of `length` numbers: plain integers, so that graphs have them as constants.

        Found by bisection, since torch.compile follows comparisons of a length that it takes for a variable, but no
        square root.
        """
        low, high = 0, 1
        while self._length(high) < length:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._length(middle) < length else (low, middle)
        assert self._length(high) == length, f"a row of {length} numbers holds no square maps of {self.channels}"
        return _halved(high, len(self.channels))

    def _length(self, finest: int) -> int:
        return sum(k * side * side for k, side in zip(self.channels, _halved(finest, len(self.channels)), strict=True))


def _halved(side: int, scales: int) -> list[int]:
    """What convolutions of stride 2 make of a side."""
    return [-(-side // 2**s) for s in range(scales)]


def _as_row(features: Tensor) -> Tensor:
    return features.flatten(1) if torch.compiler.is_exporting() else features.permute(0, 2, 3, 1).flatten(1)


def _as_map(row_BL: Tensor, channels: int, side: int) -> Tensor:
    if torch.compiler.is_exporting():
        return row_BL.view(row_BL.shape[0], channels, side, side)
    return row_BL.view(row_BL.shape[0], side, side, channels).permute(0, 3, 1, 2)


class Coarsest(nn.Module):
    """The coarsest map of packed ones: what an exit reads."""

    def __init__(self, packing: Packing) -> None:
        super().__init__()
        self.packing = packing

    def forward(self, packed_BL: Tensor) -> Tensor:
        return self.packing.coarsest(packed_BL)


@dataclass(frozen=True)
class PackedBackbone(Backbone):
    """A backbone whose stages hand on packed maps, all but the last: that one gives a map.

    Attributes:
        packings: of the output of each stage but the last. `channels[k]` is what an exit there reads: the coarsest.
    """

    packings: list[Packing]

    def reading_coarsest(self, heads: Sequence[Head]) -> list[Head]:
        """The same early heads, made for a map, for packed ones."""
        return [
            Head(nn.Sequential(OrderedDict(coarsest=Coarsest(packing), convolutions=head.trunk)), head.classifier)
            for head, packing in zip(heads, self.packings, strict=True)
        ]
