"""Whether the stay at the present rung shows that the target is missed, and not only noise."""

# Shapes: N examples of a window

import math
from collections import deque

import numpy as np
from numpy.typing import NDArray

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
