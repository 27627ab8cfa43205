"""Expected calibration error: how far the confidence is from the share of right answers."""

# Shapes: N examples, B bins

import numpy as np
from numpy.typing import NDArray

from elfnet.errors import RequestError

BINS = 15


def calibration_error(confidence_N: NDArray[np.float64], correct_N: NDArray[np.bool_], *, bins: int = BINS) -> float:
    """Top-label expected calibration error: sum over bins of |right answers - summed confidence| / N.

    The bins are equally wide and closed on the left; a confidence of exactly 1 belongs to the last one.
    """
    if len(confidence_N) == 0:
        raise RequestError("the calibration error of no examples is undefined; evaluate a split that has some")
    edges = np.linspace(0.0, 1.0, bins + 1)
    bin_N = np.searchsorted(edges[1:-1], confidence_N, side="right")
    confidence_B = np.bincount(bin_N, weights=confidence_N, minlength=bins)
    right_B = np.bincount(bin_N, weights=correct_N.astype(np.float64), minlength=bins)
    return float(np.abs(right_B - confidence_B).sum() / len(confidence_N))
