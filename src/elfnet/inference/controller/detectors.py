"""What a controller measures (mean cost or 95th percentile), and two detectors: overload and change of the input mix.

A gauge turns both quantities into one form, so that one rule serves both: a number per example whose mean must not
exceed a limit.
"""

# Shapes: N examples of a call or a window, P rungs of the ladder

import math
from collections import deque
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from elfnet.inference.controller.ladder import Ladder

Values = NDArray[np.float64]

TAIL_SHARE = 0.05
"""Share of requests above the 95th percentile."""
MIX_LENGTHS = (1, 2, 4, 8, 16, 32)
"""Numbers of recent windows that `MixChange` compares with all earlier ones."""
OVERLOAD_WINDOWS = 64
"""Windows that `Overload` remembers."""
OVERLOAD_ERRORS = 2.5
"""Standard errors by which a mean must exceed the limit."""


class Gauge(Protocol):
    """How observed values are compared with a target."""

    def overload(self, observed_N: Values, limit: float) -> Values:
        """Return a number per example, shape (N,). The limit is exceeded if their mean exceeds `allowed(limit)`."""
        ...

    def allowed(self, limit: float) -> float:
        """Return the largest mean of `overload` that is within the limit."""
        ...

    def mix(self, observed_N: Values, target: float) -> Values:
        """Return a number in [0, 1] per example, shape (N,), whose mean changes with the mix of inputs."""
        ...

    def value(self, observed_N: Values) -> float:
        """Return the controlled quantity, in its own unit."""
        ...

    def predicted(self, ladder: Ladder, value: float, at: int) -> tuple[float, ...]:
        """Predict the quantity on each rung, shape (P,), rising, if it is `value` on rung `at`."""
        ...


@dataclass(frozen=True)
class MeanCost:
    """Mean cost per example, relative to the plain backbone.

    Attributes:
        least: Smallest cost of any example.
        largest: Largest cost of any example.
    """

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
        # A rung cannot cost more than its deepest exit.
        return tuple(map(min, ladder.scaled(value, at), ladder.worst_cost))


@dataclass(frozen=True)
class TailLatency:
    """95th percentile of latency. It exceeds a limit exactly if more than 5 % of the latencies do."""

    def overload(self, observed_N: Values, limit: float) -> Values:
        return (observed_N > limit).astype(np.float64)

    def allowed(self, limit: float) -> float:  # noqa: ARG002
        return TAIL_SHARE

    def mix(self, observed_N: Values, target: float) -> Values:
        # The test of a change needs bounded values; beyond twice the target all count the same.
        return np.minimum(observed_N / (2.0 * target), 1.0)

    def value(self, observed_N: Values) -> float:
        return float(np.quantile(observed_N, 1.0 - TAIL_SHARE))

    def predicted(self, ladder: Ladder, value: float, at: int) -> tuple[float, ...]:
        return ladder.scaled(value, at)


class MixChange:
    """Detects a change of the input mix by two-sample Hoeffding tests.

    Over an endless stream, the probabilities of a false alarm sum to at most `false_alarm`.

    For independent values in [0, 1] with equal expectation, the means of n recent and m earlier values satisfy
    P(|difference| >= e) <= 2 exp(-2 e^2 / (1/n + 1/m)). At the w-th window of one of P rungs, each of the L lengths
    gives a false alarm with a probability of at most false_alarm / (P L w (w - 1)); the sum over w >= 2, lengths and
    rungs is false_alarm. Which rung is used depends only on the past, so the values seen on each rung are independent
    draws on that rung, whatever the moves were.
    """

    def __init__(self, rungs: int, false_alarm: float) -> None:
        self._false_alarm = false_alarm
        self._records = [_Record() for _ in range(rungs)]

    def add(self, rung: int, mix_N: NDArray[np.float64]) -> bool:
        """Add a window of values in [0, 1], and return whether the mix has changed.

        After a change all records are cleared, and this window is the first of its rung.
        """
        record = self._records[rung]
        record.add(len(mix_N), float(mix_N.sum()))
        if not record.changed(self._false_alarm / len(self._records)):
            return False
        self._records = [_Record() for _ in self._records]
        self._records[rung].add(len(mix_N), float(mix_N.sum()))
        return True


class _Record:
    """Windows seen on one rung: count and total of each of the latest, and of all together."""

    def __init__(self) -> None:
        self._latest: deque[tuple[int, float]] = deque(maxlen=MIX_LENGTHS[-1])
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
            if length not in MIX_LENGTHS:
                continue
            difference = recent_total / recent - (self._total - recent_total) / earlier
            share = false_alarm / (len(MIX_LENGTHS) * self._windows * (self._windows - 1))
            if abs(difference) >= math.sqrt(math.log(2.0 / share) * (1.0 / recent + 1.0 / earlier) / 2.0):
                return True
        return False


class Overload:
    """Detects that a limit is exceeded, from the last 1, 2, 4 ... 64 windows since the last move.

    A large excess shows in one window, a small one only in the mean of many. Each number of windows is tested with the
    standard error of its own mean, which limits false alarms through noise.
    """

    def __init__(self) -> None:
        self._windows: deque[tuple[int, float, float]] = deque(maxlen=OVERLOAD_WINDOWS)

    def clear(self) -> None:
        """Forget all windows."""
        self._windows.clear()

    def add(self, overload_N: NDArray[np.float64]) -> None:
        """Add a window of values of `Gauge.overload`."""
        self._windows.append((len(overload_N), float(overload_N.sum()), float(np.square(overload_N).sum())))

    def exceeds(self, allowed: float) -> bool:
        """Return whether mean - 2.5 standard errors > allowed, for the last 1, 2, 4 ... or all windows."""
        count, total, squares = 0, 0.0, 0.0
        for length, (window_count, window_total, window_squares) in enumerate(reversed(self._windows), start=1):
            count, total, squares = count + window_count, total + window_total, squares + window_squares
            is_power_of_two = length & (length - 1) == 0
            if not is_power_of_two and length != len(self._windows):
                continue
            mean = total / count
            # Rounding can make the variance of a constant stream slightly negative.
            variance = max(squares / count - mean * mean, 0.0)
            if mean - OVERLOAD_ERRORS * math.sqrt(variance / count) > allowed:
                return True
        return False
