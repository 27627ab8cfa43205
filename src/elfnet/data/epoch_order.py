"""Which examples an epoch shows, and in what order: a pure function of a generator, the same in every process.

`shuffle` shows every example once. The others first draw a class for each place of the epoch, and then go through
the examples of each class in a random order, and again once all were shown: rare examples repeat evenly.
"""

# Shapes: N examples, and as many places in an epoch; C classes

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from elfnet.data.examples import Ints
from elfnet.registry import Registry

# A class of n examples is drawn with a probability that goes as n to this power; None draws no classes.
SAMPLERS: Registry[float | None] = Registry("data.sampler")
SAMPLERS.register("shuffle")(None)
SAMPLERS.register("class-balanced")(0.0)
SAMPLERS.register("square-root")(0.5)
SAMPLERS.register("reversed")(-1.0)


class Drawn(NamedTuple):
    """Examples of an epoch in order, and how often each was shown before in it (its augmentation differs)."""

    rows_N: Tensor
    repeat_N: Tensor


class EpochOrder:
    """Draws epochs.

    Args:
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
        if self._power is None:
            rows_N = torch.randperm(self._examples, generator=generator)
            return Drawn(rows_N, torch.zeros_like(rows_N))
        share_C = torch.tensor([len(rows) for rows in self._rows_C], dtype=torch.float64).pow(self._power)
        class_N = torch.multinomial(share_C, self._examples, replacement=True, generator=generator)
        # Places by class: those of one class lie side by side, in the order in which the epoch comes to them.
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
