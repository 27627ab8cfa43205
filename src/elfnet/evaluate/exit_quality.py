"""The quality of each exit if all examples take it: accuracy, cost, and expected calibration error."""

# Shapes: N examples, B bins

import numpy as np
from numpy.typing import NDArray

from elfnet.data.long_tail import GROUP_NAMES
from elfnet.errors import RequestError
from elfnet.evaluate.confidence import ExitConfidences
from elfnet.run.results import ExitQuality

BINS = 15


def calibration_error(confidence_N: NDArray[np.float64], correct_N: NDArray[np.bool_], *, bins: int = BINS) -> float:
    """Top-label expected calibration error: sum over bins of |correct predictions - summed confidence| / N.

    The bins are equally wide and closed on the left; a confidence of exactly 1 belongs to the last one.
    """
    if len(confidence_N) == 0:
        raise RequestError("the calibration error of no examples is undefined; evaluate a split that has some")
    edges = np.linspace(0.0, 1.0, bins + 1)
    bin_N = np.searchsorted(edges[1:-1], confidence_N, side="right")
    confidence_B = np.bincount(bin_N, weights=confidence_N, minlength=bins)
    right_B = np.bincount(bin_N, weights=correct_N.astype(np.float64), minlength=bins)
    return float(np.abs(right_B - confidence_B).sum() / len(confidence_N))


def by_exit(confidences: ExitConfidences) -> tuple[ExitQuality, ...]:
    """The quality of every exit, in order."""
    table = confidences.table
    if table.examples == 0:
        raise RequestError(f"the {table.split} exit table has no examples; evaluate a split that has some")
    group_N = table.group_of_class[table.labels_N]
    members = {name: group_N == index for index, name in enumerate(GROUP_NAMES)}
    qualities = []
    for k in range(table.exits):
        correct_N, confidence_N = confidences.correct_NE[:, k], confidences.confidence_NE[:, k]
        qualities.append(
            ExitQuality(
                exit=k + 1,
                cost=float(table.cost_E[k]),
                accuracy=float(np.mean(correct_N)),
                accuracy_by_group={
                    name: float(np.mean(correct_N[member_N])) if member_N.any() else None
                    for name, member_N in members.items()
                },
                mean_confidence=float(np.mean(confidence_N)),
                calibration_error=calibration_error(confidence_N, correct_N),
            )
        )
    return tuple(qualities)
