"""Samplers, random generators of epochs and steps, and the shard of a process.

Everything is a pure function of seed, epoch and step, and equal in all processes. `shuffle` shows every example once.
The other samplers draw a class for each position of the epoch. The examples of a class are then shown in random order,
and again in a new random order once all were shown, so that rare examples repeat evenly.
"""

# Shapes: N examples, and as many positions in an epoch; C classes; n examples of one class; B batch of all processes

from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elfnet.data.types import Ints
from elfnet.registry import Registry

Batch = TypeVar("Batch", Tensor, NDArray[np.int64])

# A class of n examples is drawn with a probability proportional to n to this power; None draws no classes.
SAMPLERS: Registry[float | None] = Registry("data.sampler")
SAMPLERS.register("shuffle")(None)
SAMPLERS.register("class-balanced")(0.0)
SAMPLERS.register("square-root")(0.5)
SAMPLERS.register("reversed")(-1.0)


class Drawn(NamedTuple):
    """The examples of an epoch in order.

    Attributes:
        rows_N: Positions in the split.
        repeat_N: How often each example was shown before in the epoch; its augmentation depends on it.
    """

    rows_N: Tensor
    repeat_N: Tensor


class EpochOrder:
    """Draws the order of the examples of an epoch.

    Args:
        labels_N: Labels of the training split.
        sampler: shuffle, class-balanced, square-root or reversed (rare classes most often).
    """

    def __init__(self, labels_N: Ints, sampler: str = "shuffle") -> None:
        self._examples = len(labels_N)
        self._power = SAMPLERS[sampler]
        by_class_N = np.argsort(labels_N, kind="stable")
        starts = np.flatnonzero(np.diff(labels_N[by_class_N], prepend=-1))
        # Classes without an example are not drawn.
        self._rows_C = [torch.from_numpy(rows) for rows in np.split(by_class_N, starts[1:])]

    def draw(self, generator: torch.Generator) -> Drawn:
        """Draw as many examples as the split has."""
        if self._power is None:
            rows_N = torch.randperm(self._examples, generator=generator)
            return Drawn(rows_N, torch.zeros_like(rows_N))
        share_C = torch.tensor([len(rows) for rows in self._rows_C], dtype=torch.float64).pow(self._power)
        class_N = torch.multinomial(share_C, self._examples, replacement=True, generator=generator)
        # Positions in the epoch, sorted by class and, within a class, by position.
        places_N = class_N.argsort(stable=True)
        wanted_C = torch.bincount(class_N, minlength=len(self._rows_C)).tolist()
        rows, repeats = [], []
        for rows_n, wanted in zip(self._rows_C, wanted_C, strict=True):
            rounds = -(-wanted // len(rows_n))
            rows += [rows_n[torch.randperm(len(rows_n), generator=generator)] for _ in range(rounds)]
            cut = rounds * len(rows_n) - wanted
            if cut:
                rows[-1] = rows[-1][: len(rows_n) - cut]
            repeats.append(torch.arange(wanted) // len(rows_n))
        drawn = Drawn(torch.empty_like(places_N), torch.empty_like(places_N))
        drawn.rows_N[places_N], drawn.repeat_N[places_N] = torch.cat(rows), torch.cat(repeats)
        return drawn


def epoch_generator(seed: int, epoch: int) -> torch.Generator:
    """The generator of an epoch; seed and epoch are hashed, so that neighbouring seeds do not share epochs."""
    mixed = int(np.random.SeedSequence([seed, epoch]).generate_state(1, np.uint64)[0] >> 1)
    return torch.Generator().manual_seed(mixed)


def step_rng(seed: int, epoch: int, step: int, stream: int) -> np.random.Generator:
    """The generator of one step of an epoch.

    Args:
        stream: Identifies the user of the numbers; different users of one step need independent numbers.
    """
    # A spawn key instead of more entropy, which is padded with zeros: [seed, epoch] and [seed, epoch, 0] are equal.
    return np.random.default_rng(np.random.SeedSequence([seed, epoch], spawn_key=(stream, step)))


@dataclass(frozen=True)
class Shard:
    """The part of each batch that belongs to process `rank` of `world_size`.

    The parts of a batch are contiguous and in order of rank; their sizes differ by at most one.

    Example:
        >>> [Shard(rank, 3).bounds(7) for rank in range(3)]
        [(0, 3), (3, 5), (5, 7)]
    """

    rank: int = 0
    world_size: int = 1

    def bounds(self, batch: int) -> tuple[int, int]:
        """First position of this process's part in a batch of this size, and one past the last."""
        size, larger = divmod(batch, self.world_size)
        first = self.rank * size + min(self.rank, larger)
        return first, first + size + (self.rank < larger)

    def of(self, batch_B: Batch) -> Batch:
        """This process's part of a batch; it is empty in some processes if the batch is smaller than `world_size`."""
        first, end = self.bounds(len(batch_B))
        return batch_B[first:end]


UNSHARDED = Shard()
"""The shard of a single process: all of every batch."""


class ExampleRng:
    """Random number generators of the examples of an epoch.

    One counter-based generator is moved to the start of each example: creating a new one is many times slower.
    """

    def __init__(self, seed: int, epoch: int) -> None:
        key = np.random.SeedSequence([seed, epoch]).generate_state(2, np.uint64)
        self._bits = np.random.Philox(key=key)
        self._state = self._bits.state
        self._generator = np.random.Generator(self._bits)

    def of(self, row: int, repeat: int = 0) -> np.random.Generator:
        """The generator of an example; valid until the next call.

        Args:
            row: Position of the example in the training split.
            repeat: How often the example was shown before in this epoch.
        """
        self._state["state"]["counter"] = np.array([0, 0, row, repeat], dtype=np.uint64)
        self._bits.state = self._state
        return self._generator
