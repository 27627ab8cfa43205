"""Many operating points at once: accuracy, cost and exit shares of each, without replaying them one by one.

Both functions count, for every point, how many examples leave at each exit by frequency group and by whether the
answer there is right. All figures follow from these counts, which are whole numbers: the two ways agree exactly.
"""

# Shapes: P operating points, N examples, E exits, T = E - 1 thresholds, G frequency groups, 2 = wrong / right

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elfnet.data.groups import GROUP_NAMES
from elfnet.errors import RequestError
from elfnet.evaluate.derived import Derived
from elfnet.exits.policy import NEVER

CHUNK_CELLS = 4 * 2**20
"""Points x examples held at a time: about 40 MB of working memory."""

GROUPS = len(GROUP_NAMES)


@dataclass(frozen=True, eq=False)
class Sweep:
    """Figures of P operating points; NaN stands for the accuracy of a group without examples."""

    thresholds_PT: NDArray[np.float64]
    accuracy_P: NDArray[np.float64]
    accuracy_PG: NDArray[np.float64]
    mean_cost_P: NDArray[np.float64]
    exit_share_PE: NDArray[np.float64]


def sweep(derived: Derived, thresholds_PT: NDArray[np.float64]) -> Sweep:
    """Evaluate one row of thresholds per operating point, one column for every exit but the last."""
    _require_examples(derived)
    exits = derived.table.exits
    thresholds_PT = np.asarray(thresholds_PT, dtype=np.float64)
    if thresholds_PT.ndim != 2 or thresholds_PT.shape[1] != exits - 1:
        raise RequestError(
            f"thresholds of shape {thresholds_PT.shape} do not fit {exits} exits; give (points, {exits - 1})"
        )
    points, examples = len(thresholds_PT), derived.table.examples
    # Whole numbers up to 2**24 are exact in float32, which the matrix product below handles at twice the speed.
    count_dtype = np.float32 if examples < 2**24 else np.float64
    kind_NE = _kinds(derived)
    kinds = np.arange(GROUPS * 2)
    is_kind_ENK = (kind_NE.T[:, :, None] == kinds).astype(count_dtype)
    confidence_EN = np.ascontiguousarray(derived.confidence_NE.T)
    count_PEK = np.empty((points, exits, len(kinds)), dtype=np.float64)
    chunk = max(1, CHUNK_CELLS // examples)
    for start in range(0, points, chunk):
        rows = slice(start, start + chunk)
        stays_BN = np.ones((len(thresholds_PT[rows]), examples), dtype=np.bool_)
        for k in range(exits - 1):
            leaves_BN = confidence_EN[k] > thresholds_PT[rows, k, None]
            leaves_BN &= stays_BN
            stays_BN ^= leaves_BN
            count_PEK[rows, k] = leaves_BN.astype(count_dtype) @ is_kind_ENK[k]
        count_PEK[rows, -1] = stays_BN.astype(count_dtype) @ is_kind_ENK[-1]
    return _figures(derived, thresholds_PT, count_PEK)


def sweep_uniform(derived: Derived, threshold_P: NDArray[np.float64]) -> Sweep:
    """Evaluate one threshold s for all exits per operating point, in time N log P instead of N x P.

    An example leaves at exit k exactly for the s from the largest confidence of the exits before k (included) up to the
    largest including k (not included), so in the sorted list of s it adds one run of points to each exit.
    """
    _require_examples(derived)
    exits, points = derived.table.exits, len(threshold_P)
    order_P = np.argsort(threshold_P, kind="stable")
    sorted_P = np.asarray(threshold_P, dtype=np.float64)[order_P]
    kind_NE = _kinds(derived)
    kinds = GROUPS * 2
    running_NT = np.maximum.accumulate(derived.confidence_NE[:, :-1], axis=1)
    begin_N = np.zeros(derived.table.examples, dtype=np.int64)
    count_PEK = np.empty((points, exits, kinds), dtype=np.float64)
    for k in range(exits):
        end_N = np.searchsorted(sorted_P, running_NT[:, k]) if k < exits - 1 else np.full_like(begin_N, points)
        # One more from `begin` on, one less from `end` on; the running sum gives the number at each point.
        change_PK = _histogram(begin_N, kind_NE[:, k], points, kinds) - _histogram(end_N, kind_NE[:, k], points, kinds)
        count_PEK[order_P, k] = np.cumsum(change_PK[:points], axis=0)
        begin_N = end_N
    thresholds_PT = np.repeat(np.asarray(threshold_P, dtype=np.float64)[:, None], exits - 1, axis=1)
    return _figures(derived, thresholds_PT, count_PEK)


def _require_examples(derived: Derived) -> None:
    if derived.table.examples == 0:
        raise RequestError(f"the {derived.table.split} exit table has no examples; evaluate a split that has some")


def _kinds(derived: Derived) -> NDArray[np.int64]:
    """2 * group + right, of each example at each exit."""
    group_N = derived.table.group_of_class[derived.table.labels_N]
    return 2 * group_N[:, None] + derived.correct_NE


def _histogram(position_N: NDArray[np.int64], kind_N: NDArray[np.int64], points: int, kinds: int) -> NDArray[np.int64]:
    flat = np.bincount(position_N * kinds + kind_N, minlength=(points + 1) * kinds)
    return flat.reshape(points + 1, kinds)


def _cost_to_exit(derived: Derived, thresholds_PT: NDArray[np.float64]) -> NDArray[np.float64]:
    """`ExitTable.cost_under` for all points at once, shape (P, E)."""
    table = derived.table
    skipped_PT = thresholds_PT >= NEVER
    if table.head_cost_E is None or derived.combine or not skipped_PT.any():
        return np.broadcast_to(table.cost_E, (len(thresholds_PT), table.exits))
    saved_PT = np.cumsum(np.where(skipped_PT, table.head_cost_E[:-1], 0.0), axis=1)
    cost_PE = np.repeat(table.cost_E[None], len(thresholds_PT), axis=0)
    cost_PE[:, :-1] -= saved_PT
    cost_PE[:, -1:] -= saved_PT[:, -1:]
    return cost_PE


def _figures(derived: Derived, thresholds_PT: NDArray[np.float64], count_PEK: NDArray[np.float64]) -> Sweep:
    examples = derived.table.examples
    count_PEG2 = count_PEK.reshape(*count_PEK.shape[:2], GROUPS, 2)
    leaving_PE = count_PEG2.sum(axis=(2, 3))
    right_PG = count_PEG2[..., 1].sum(axis=1)
    size_G = np.bincount(derived.table.group_of_class[derived.table.labels_N], minlength=GROUPS)
    with np.errstate(invalid="ignore"):
        accuracy_PG = right_PG / size_G
    return Sweep(
        thresholds_PT=thresholds_PT,
        accuracy_P=right_PG.sum(axis=1) / examples,
        accuracy_PG=accuracy_PG,
        mean_cost_P=(leaving_PE * _cost_to_exit(derived, thresholds_PT)).sum(axis=1) / examples,
        exit_share_PE=leaving_PE / examples,
    )
