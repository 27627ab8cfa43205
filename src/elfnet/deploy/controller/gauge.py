"""What a controller measures: the mean cost of examples, or the 95th percentile of durations.

Both are put in one form, so that one rule serves both: a number per example whose mean must not exceed a limit.
"""

# Shapes: N examples of a call or a window, P rungs of the ladder

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from elfnet.deploy.controller.ladder import Ladder

Values = NDArray[np.float64]

TAIL_SHARE = 0.05
"""The share of requests that may take longer than the 95th percentile."""


class Gauge(Protocol):
    """How a stream of observed values is held against a target."""

    def overload(self, observed_N: Values, limit: float) -> Values:
        """A number per example, shape (N,); the limit is exceeded where their mean exceeds `allowed(limit)`."""
        ...

    def allowed(self, limit: float) -> float:
        """The largest mean of `overload` that is still within the limit."""
        ...

    def mix(self, observed_N: Values, target: float) -> Values:
        """A number in [0, 1] per example, shape (N,), whose mean tells a change of the inputs."""
        ...

    def value(self, observed_N: Values) -> float:
        """The quantity that is held, in its own unit."""
        ...

    def predicted(self, ladder: Ladder, value: float, at: int) -> tuple[float, ...]:
        """What each rung would give, shape (P,), rising, if rung `at` gives `value`."""
        ...


@dataclass(frozen=True)
class MeanCost:
    """Mean cost of an example, relative to the plain backbone; `least` and `largest` bound what an input can cost."""

    least: float
    largest: float

    def overload(self, observed_N: Values, limit: float) -> Values:  # noqa: ARG002
        return observed_N

    def allowed(self, limit: float) -> float:
        return limit

    def mix(self, observed_N: Values, target: float) -> Values:  # noqa: ARG002
        return np.clip((observed_N - self.least) / (self.largest - self.least), 0.0, 1.0)

    def value(self, observed_N: Values) -> float:
        return float(observed_N.mean())

    def predicted(self, ladder: Ladder, value: float, at: int) -> tuple[float, ...]:
        # No rung can cost more than its deepest exit, however hard the inputs are.
        return tuple(map(min, ladder.scaled(value, at), ladder.worst_cost))


@dataclass(frozen=True)
class TailLatency:
    """95th percentile: it exceeds the limit exactly if more than 5 % of the durations do."""

    def overload(self, observed_N: Values, limit: float) -> Values:
        return (observed_N > limit).astype(np.float64)

    def allowed(self, limit: float) -> float:  # noqa: ARG002
        return TAIL_SHARE

    def mix(self, observed_N: Values, target: float) -> Values:
        # Bounded, as the test of a change needs it; beyond twice the target it no longer matters by how much.
        return np.minimum(observed_N / (2.0 * target), 1.0)

    def value(self, observed_N: Values) -> float:
        return float(np.quantile(observed_N, 1.0 - TAIL_SHARE))

    def predicted(self, ladder: Ladder, value: float, at: int) -> tuple[float, ...]:
        return ladder.scaled(value, at)
