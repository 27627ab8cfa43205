"""Has the mix of inputs changed? A test that a stream without change passes for ever.

Costs at different operating points are not comparable, so each rung has its own record: the last 1, 2, 4 ... windows
seen there against all earlier ones there.
"""

# Shapes: N examples of a window

import math
from collections import deque

import numpy as np
from numpy.typing import NDArray

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
