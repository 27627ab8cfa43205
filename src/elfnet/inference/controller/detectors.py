"""What a controller measures: the mean cost of examples, or the 95th percentile of durations.

Both are put in one form, so that one rule serves both: a number per example whose mean must not exceed a limit.
"""

# Shapes: N examples of a call or a window, P rungs of the ladder
# Shapes: N examples of a window

import math
from collections import deque
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from elfnet.inference.controller.stepper import Ladder

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


LENGTHS = (1, 2, 4, 8, 16, 32)
"""Windows that are compared with all before them."""


class MixChange:
    """Two-sample Hoeffding tests whose chances of a false alarm sum to at most `false_alarm` over an endless stream.

    For independent values in [0, 1] with one mean, the means of a recent and of b earlier ones satisfy
    P(|difference| >= e) <= 2 exp(-2 e^2 / (1/a + 1/b)). At the w-th window of one of P rungs each of the L lengths
    may give a false alarm with probability false_alarm / (P L w (w - 1)); the sum over w >= 2, lengths and rungs is
    false_alarm. Which rung is looked at depends on the past only, so the values seen at each rung are independent
    draws at that rung whatever the moves were.
    """

    def __init__(self, rungs: int, false_alarm: float) -> None:
        self._false_alarm = false_alarm
        self._records = [_Record() for _ in range(rungs)]

    def add(self, rung: int, mix_N: NDArray[np.float64]) -> bool:
        """Take a window of values in [0, 1]; True starts every record anew, with this window as the first."""
        record = self._records[rung]
        record.add(len(mix_N), float(mix_N.sum()))
        if not record.changed(self._false_alarm / len(self._records)):
            return False
        self._records = [_Record() for _ in self._records]
        self._records[rung].add(len(mix_N), float(mix_N.sum()))
        return True


class _Record:
    """Windows seen at one rung: the latest one by one, all of them as a total."""

    def __init__(self) -> None:
        self._latest: deque[tuple[int, float]] = deque(maxlen=LENGTHS[-1])
        self._windows, self._count, self._total = 0, 0, 0.0

    def add(self, count: int, total: float) -> None:
        self._latest.append((count, total))
        self._windows += 1
        self._count += count
        self._total += total

    def changed(self, false_alarm: float) -> bool:
        recent, recent_total = 0, 0.0
        for length, (count, total) in enumerate(reversed(self._latest), start=1):
            recent, recent_total = recent + count, recent_total + total
            earlier = self._count - recent
            if earlier == 0:
                break
            if length not in LENGTHS:
                continue
            difference = recent_total / recent - (self._total - recent_total) / earlier
            share = false_alarm / (len(LENGTHS) * self._windows * (self._windows - 1))
            if abs(difference) >= math.sqrt(math.log(2.0 / share) * (1.0 / recent + 1.0 / earlier) / 2.0):
                return True
        return False


LONGEST = 64
"""Windows remembered of a stay."""

SURE = 2.5
"""Standard errors by which a mean must exceed the limit."""


class Overload:
    """Evidence from the last 1, 2, 4 ... 64 windows of one stay.

    A large excess shows in one window, a small one only in the mean of many: each length is looked at, each with the
    standard error of its own mean, which limits what noise alone can cause.
    """

    def __init__(self) -> None:
        self._windows: deque[tuple[int, float, float]] = deque(maxlen=LONGEST)

    def clear(self) -> None:
        self._windows.clear()

    def add(self, overload_N: NDArray[np.float64]) -> None:
        self._windows.append((len(overload_N), float(overload_N.sum()), float(np.square(overload_N).sum())))

    def exceeds(self, allowed: float) -> bool:
        """Whether mean - SURE * standard error > allowed over the last 1, 2, 4 ... or all windows."""
        count, total, squares = 0, 0.0, 0.0
        for length, (window_count, window_total, window_squares) in enumerate(reversed(self._windows), start=1):
            count, total, squares = count + window_count, total + window_total, squares + window_squares
            is_power_of_two = length & (length - 1) == 0
            if not is_power_of_two and length != len(self._windows):
                continue
            mean = total / count
            # Rounding can leave a constant stream with a variance just below 0.
            variance = max(squares / count - mean * mean, 0.0)
            if mean - SURE * math.sqrt(variance / count) > allowed:
                return True
        return False
