"""What every way of re-sampling takes and gives."""

# Shapes: N examples, M examples afterwards, F features

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from elfnet.data.examples import Ints

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Resampled:
    """Features and labels to fit a classifier on.

    Attributes:
        smaller: classes with too few examples for the neighbours asked for, each with how many were looked at.
        as_they_were: classes that the method would have changed but left, since it had nothing to go by.
    """

    features_MF: Floats
    labels_M: Ints
    smaller: dict[int, int] = field(default_factory=dict)
    as_they_were: tuple[int, ...] = ()


class Resampler(Protocol):
    """A way of re-sampling; a pure function of its arguments."""

    def __call__(self, features_NF: Floats, labels_N: Ints, *, neighbours: int, seed: int) -> Resampled: ...
