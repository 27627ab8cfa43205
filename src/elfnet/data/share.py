"""The part of each batch that is one process's own, where several train together."""

# Shapes: B batch of all processes

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Batch = TypeVar("Batch", Tensor, NDArray[np.int64])


@dataclass(frozen=True)
class Share:
    """Process `rank` of `world`. All parts of a batch make up the batch, in order; their sizes differ by at most one.

    Example:
        >>> [Share(rank, 3).bounds(7) for rank in range(3)]
        [(0, 3), (3, 5), (5, 7)]
    """

    rank: int = 0
    world: int = 1

    def bounds(self, batch: int) -> tuple[int, int]:
        """First position of this process in a batch of this size, and one past its last."""
        size, larger = divmod(batch, self.world)
        first = self.rank * size + min(self.rank, larger)
        return first, first + size + (self.rank < larger)

    def of(self, batch_B: Batch) -> Batch:
        """This process's part; a batch smaller than the number of processes leaves some with nothing."""
        first, end = self.bounds(len(batch_B))
        return batch_B[first:end]


WHOLE = Share()
"""One process, which takes every batch whole."""
