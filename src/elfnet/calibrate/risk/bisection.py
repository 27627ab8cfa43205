"""Turning a test into a bound: the smallest limit that the test rejects."""

# Shapes: P candidates

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

HALVINGS = 26
"""Bounds are exact to 2 ** -26, far below one example in any table; rounding is towards the careful side."""


def smallest_rejected(
    rejected: Callable[[NDArray[np.float64]], NDArray[np.bool_]], candidates: int
) -> NDArray[np.float64]:
    """The smallest limit in [0, 1] at which "the mean is above the limit" is rejected, shape (P,); 1 if none is.

    The test must be monotone: rejected at a limit, it is rejected at every larger one.

    Args:
        rejected: for one limit per candidate, whether each is rejected.
        candidates: P.
    """
    low_P, high_P = np.zeros(candidates), np.ones(candidates)
    for _ in range(HALVINGS):
        middle_P = (low_P + high_P) / 2
        is_rejected_P = rejected(middle_P)
        high_P = np.where(is_rejected_P, middle_P, high_P)
        low_P = np.where(is_rejected_P, low_P, middle_P)
    return high_P
