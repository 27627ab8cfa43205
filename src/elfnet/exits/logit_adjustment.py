"""Logit adjustment at inference (Menon et al. 2021): subtracts tau log prior from the logits of an exit.

A network trained on imbalanced classes favours the frequent ones. Subtracting the log prior of the training split gives
predictions for classes that are equally frequent. NumPy only: policies use it where torch is not installed.
"""

# Shapes: N examples, C classes

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elfnet.errors import RequestError


@dataclass(frozen=True)
class LogitAdjustment:
    """A shift of the logits of each exit, applied before confidence and prediction are computed.

    Attributes:
        taus: the strength per exit, for logits as the network returns them. At 0 the logits of an exit do not change.
        log_prior: the log of each class's fraction of the training examples.

    Raises:
        RequestError: a tau is negative, or a value is missing or not finite.

    Example:
        >>> adjustment = LogitAdjustment(taus=(1.0,), log_prior=(-0.5, -1.0))
        >>> adjustment.apply(0, np.zeros((1, 2))).tolist()
        [[0.5, 1.0]]
    """

    taus: tuple[float, ...]
    log_prior: tuple[float, ...] = field(repr=False)

    def __post_init__(self) -> None:
        if not self.taus or not all(math.isfinite(tau) and tau >= 0 for tau in self.taus):
            raise RequestError(f"logit adjustment: taus {list(self.taus)} must be numbers of 0 or more, one per exit")
        if not self.log_prior or not all(math.isfinite(value) for value in self.log_prior):
            raise RequestError("logit adjustment: log_prior must be finite numbers, one per class; calibrate again")

    def __hash__(self) -> int:
        # Policies of one family share a prior, which may have thousands of entries. The taus tell them apart.
        return hash(self.taus)

    @property
    def exits(self) -> int:
        """The number of exits."""
        return len(self.taus)

    @property
    def classes(self) -> int:
        """The number of classes."""
        return len(self.log_prior)

    def apply(self, exit_index: int, logits_NC: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
        """Return the adjusted logits of exit `exit_index` (counted from 0); float64, or the input if its tau is 0."""
        if self.taus[exit_index] == 0.0:
            return logits_NC
        adjusted_NC: NDArray[np.float64] = logits_NC - self._shift_by_exit[exit_index]
        return adjusted_NC

    @cached_property
    def _shift_by_exit(self) -> NDArray[np.float64]:
        return np.outer(np.asarray(self.taus, dtype=np.float64), np.asarray(self.log_prior, dtype=np.float64))
