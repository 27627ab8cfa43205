"""The accuracy-cost curve of a model, and the figures of many operating points at once.

The curve has one threshold for all exits, from 0 (all examples take the first exit) to 1 (no example exits early).
`sweep` and `sweep_uniform` evaluate many thresholds, `efficient` selects the Pareto-efficient points.
"""

# Shapes: P operating points, B points of a chunk, N examples, E exits, T = E - 1 thresholds, G frequency groups,
# K = 2 G kinds of examples (group, wrong / right)

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elfnet.data.long_tail import GROUP_NAMES
from elfnet.errors import RequestError
from elfnet.evaluate.policy_replay import ExitConfidences
from elfnet.exits.policy import NEVER
from elfnet.run.results import CurvePoint

CHUNK_CELLS = 4 * 2**20
"""Points x examples in memory at a time: about 40 MB."""

GROUPS = len(GROUP_NAMES)


@dataclass(frozen=True, eq=False)
class Sweep:
    """Figures of P operating points; the accuracy of a group without examples is NaN."""

    thresholds_PT: NDArray[np.float64]
    accuracy_P: NDArray[np.float64]
    accuracy_PG: NDArray[np.float64]
    mean_cost_P: NDArray[np.float64]
    exit_share_PE: NDArray[np.float64]


def sweep(confidences: ExitConfidences, thresholds_PT: NDArray[np.float64]) -> Sweep:
    """Evaluate operating points: one row of thresholds per point, one column per exit except the last."""
    _require_examples(confidences)
    exits = confidences.table.exits
    thresholds_PT = np.asarray(thresholds_PT, dtype=np.float64)
    if thresholds_PT.ndim != 2 or thresholds_PT.shape[1] != exits - 1:
        raise RequestError(
            f"thresholds of shape {thresholds_PT.shape} do not fit {exits} exits; give (points, {exits - 1})"
        )
    points, examples = len(thresholds_PT), confidences.table.examples
    # Integers up to 2**24 are exact in float32, with which the matrix product below is twice as fast.
    count_dtype = np.float32 if examples < 2**24 else np.float64
    kind_NE = _kinds(confidences)
    kinds = np.arange(GROUPS * 2)
    is_kind_ENK = (kind_NE.T[:, :, None] == kinds).astype(count_dtype)
    confidence_EN = np.ascontiguousarray(confidences.confidence_NE.T)
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
    return _figures(confidences, thresholds_PT, count_PEK)


def sweep_uniform(confidences: ExitConfidences, threshold_P: NDArray[np.float64]) -> Sweep:
    """Evaluate operating points with one threshold s for all exits, in time N log P instead of N x P.

    An example takes exit k for a <= s < b, where a is its largest confidence before exit k and b its largest confidence
    up to and including exit k. In the sorted list of thresholds these s are consecutive.
    """
    _require_examples(confidences)
    exits, points = confidences.table.exits, len(threshold_P)
    order_P = np.argsort(threshold_P, kind="stable")
    sorted_P = np.asarray(threshold_P, dtype=np.float64)[order_P]
    kind_NE = _kinds(confidences)
    kinds = GROUPS * 2
    running_NT = np.maximum.accumulate(confidences.confidence_NE[:, :-1], axis=1)
    begin_N = np.zeros(confidences.table.examples, dtype=np.int64)
    count_PEK = np.empty((points, exits, kinds), dtype=np.float64)
    for k in range(exits):
        end_N = np.searchsorted(sorted_P, running_NT[:, k]) if k < exits - 1 else np.full_like(begin_N, points)
        # Add 1 at `begin`, subtract 1 at `end`; the cumulative sum is the count at each point.
        change_PK = _histogram(begin_N, kind_NE[:, k], points, kinds) - _histogram(end_N, kind_NE[:, k], points, kinds)
        count_PEK[order_P, k] = np.cumsum(change_PK[:points], axis=0)
        begin_N = end_N
    thresholds_PT = np.repeat(np.asarray(threshold_P, dtype=np.float64)[:, None], exits - 1, axis=1)
    return _figures(confidences, thresholds_PT, count_PEK)


def _require_examples(confidences: ExitConfidences) -> None:
    if confidences.table.examples == 0:
        raise RequestError(f"the {confidences.table.split} exit table has no examples; evaluate a split that has some")


def _kinds(confidences: ExitConfidences) -> NDArray[np.int64]:
    """The kind of each example at each exit, 2 * group + correct, shape (N, E)."""
    group_N = confidences.table.group_of_class[confidences.table.labels_N]
    return 2 * group_N[:, None] + confidences.correct_NE


def _histogram(position_N: NDArray[np.int64], kind_N: NDArray[np.int64], points: int, kinds: int) -> NDArray[np.int64]:
    flat = np.bincount(position_N * kinds + kind_N, minlength=(points + 1) * kinds)
    return flat.reshape(points + 1, kinds)


def _cost_to_exit(confidences: ExitConfidences, thresholds_PT: NDArray[np.float64]) -> NDArray[np.float64]:
    """`ExitTable.cost_under` for all points at once, shape (P, E)."""
    table = confidences.table
    skipped_PT = thresholds_PT >= NEVER
    if table.head_cost_E is None or confidences.combine or not skipped_PT.any():
        return np.broadcast_to(table.cost_E, (len(thresholds_PT), table.exits))
    saved_PT = np.cumsum(np.where(skipped_PT, table.head_cost_E[:-1], 0.0), axis=1)
    cost_PE = np.repeat(table.cost_E[None], len(thresholds_PT), axis=0)
    cost_PE[:, :-1] -= saved_PT
    cost_PE[:, -1:] -= saved_PT[:, -1:]
    return cost_PE


def _figures(confidences: ExitConfidences, thresholds_PT: NDArray[np.float64], count_PEK: NDArray[np.float64]) -> Sweep:
    examples = confidences.table.examples
    count_PEG2 = count_PEK.reshape(*count_PEK.shape[:2], GROUPS, 2)
    leaving_PE = count_PEG2.sum(axis=(2, 3))
    right_PG = count_PEG2[..., 1].sum(axis=1)
    size_G = np.bincount(confidences.table.group_of_class[confidences.table.labels_N], minlength=GROUPS)
    with np.errstate(invalid="ignore"):
        accuracy_PG = right_PG / size_G
    return Sweep(
        thresholds_PT=thresholds_PT,
        accuracy_P=right_PG.sum(axis=1) / examples,
        accuracy_PG=accuracy_PG,
        mean_cost_P=(leaving_PE * _cost_to_exit(confidences, thresholds_PT)).sum(axis=1) / examples,
        exit_share_PE=leaving_PE / examples,
    )


def curve(confidences: ExitConfidences, *, points: int = 200) -> tuple[CurvePoint, ...]:
    """The accuracy-cost curve: at most `points` points by increasing threshold, including 0 and 1."""
    threshold_P = spread_thresholds(confidences.confidence_NE[:, :-1], points)
    figures = sweep_uniform(confidences, threshold_P)
    efficient_P = efficient(figures.mean_cost_P, figures.accuracy_P)
    return tuple(
        CurvePoint(
            threshold=float(threshold_P[p]),
            mean_cost=float(figures.mean_cost_P[p]),
            accuracy=float(figures.accuracy_P[p]),
            accuracy_by_group={
                name: None if np.isnan(accuracy) else float(accuracy)
                for name, accuracy in zip(GROUP_NAMES, figures.accuracy_PG[p], strict=True)
            },
            exit_share=tuple(figures.exit_share_PE[p].tolist()),
            efficient=bool(efficient_P[p]),
        )
        for p in range(len(threshold_P))
    )


def spread_thresholds(confidence_NT: NDArray[np.float64], points: int) -> NDArray[np.float64]:
    """Increasing thresholds at equal quantile steps of the observed confidences, with 0 and 1 at the ends.

    Each lies midway between two neighbouring observations, so that rounding differences of another inference engine do
    not change an exit.
    """
    if points < 2:
        raise RequestError(f"a curve needs 2 or more points, not {points}")
    if confidence_NT.size == 0:  # a single exit: nothing to decide
        return np.array([NEVER])
    observed = np.sort(confidence_NT, axis=None)
    steps = np.linspace(0, len(observed) - 1, points)[1:-1].astype(np.int64)
    # The next larger observation of each step; the largest observation has none.
    next_above = np.searchsorted(observed, observed[steps], side="right")
    steps, next_above = steps[next_above < len(observed)], next_above[next_above < len(observed)]
    below, above = observed[steps], observed[next_above]
    midway = below + (above - below) / 2
    midway = np.where(midway < above, midway, below)  # adjacent floating-point numbers have no midpoint
    return np.unique(np.concatenate([[0.0], midway, [NEVER]]))


def efficient(cost_P: NDArray[np.float64], accuracy_P: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether each point is Pareto-efficient: no other costs at most as much and is at least as accurate.

    Of equal points only the first is efficient.
    """
    # By cost, then by decreasing accuracy, then by position: an efficient point is more accurate than all before it.
    order = np.lexsort((np.arange(len(cost_P)), -accuracy_P, cost_P))
    best_before = np.concatenate([[-np.inf], np.maximum.accumulate(accuracy_P[order])[:-1]])
    answer_P = np.zeros(len(cost_P), dtype=np.bool_)
    answer_P[order] = accuracy_P[order] > best_before
    return answer_P
