"""The accuracy-FLOPs curve of a model: one threshold for all exits, from 0 (all leave at once) to 1 (none early)."""

# Shapes: P operating points, N examples, E exits, T = E - 1 thresholds
# Shapes: P operating points, N examples, E exits, T = E - 1 thresholds, G frequency groups, 2 = wrong / right

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elfnet.data.long_tail import GROUP_NAMES
from elfnet.errors import RequestError
from elfnet.evaluate.confidence import ExitConfidences
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


def sweep(derived: ExitConfidences, thresholds_PT: NDArray[np.float64]) -> Sweep:
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


def sweep_uniform(derived: ExitConfidences, threshold_P: NDArray[np.float64]) -> Sweep:
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


def _require_examples(derived: ExitConfidences) -> None:
    if derived.table.examples == 0:
        raise RequestError(f"the {derived.table.split} exit table has no examples; evaluate a split that has some")


def _kinds(derived: ExitConfidences) -> NDArray[np.int64]:
    """2 * group + right, of each example at each exit."""
    group_N = derived.table.group_of_class[derived.table.labels_N]
    return 2 * group_N[:, None] + derived.correct_NE


def _histogram(position_N: NDArray[np.int64], kind_N: NDArray[np.int64], points: int, kinds: int) -> NDArray[np.int64]:
    flat = np.bincount(position_N * kinds + kind_N, minlength=(points + 1) * kinds)
    return flat.reshape(points + 1, kinds)


def _cost_to_exit(derived: ExitConfidences, thresholds_PT: NDArray[np.float64]) -> NDArray[np.float64]:
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


def _figures(derived: ExitConfidences, thresholds_PT: NDArray[np.float64], count_PEK: NDArray[np.float64]) -> Sweep:
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


@dataclass(frozen=True)
class CurvePoint:
    """One threshold and what it gives; accuracy None stands for a group without examples.

    Attributes:
        threshold: s, the same at all exits.
        mean_cost: mean multiply-adds relative to the plain backbone.
        accuracy: share of right answers.
        accuracy_by_group: the same by frequency group.
        exit_share: share of the examples leaving at each exit.
        efficient: whether no other point of the curve is as accurate for less, or more accurate for as little.
    """

    threshold: float
    mean_cost: float
    accuracy: float
    accuracy_by_group: dict[str, float | None]
    exit_share: tuple[float, ...]
    efficient: bool

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "exit_share": list(self.exit_share)}


def curve(derived: ExitConfidences, *, points: int = 200) -> tuple[CurvePoint, ...]:
    """At most `points` points by rising threshold, with both ends; choose among the `efficient` ones."""
    threshold_P = spread_thresholds(derived.confidence_NE[:, :-1], points)
    figures = sweep_uniform(derived, threshold_P)
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
    """Rising thresholds at equal steps of the observed confidences, with 0 and 1 at the ends.

    Each lies midway between two neighbouring observations, so that rounding in another engine moves nobody across it.
    """
    if points < 2:
        raise RequestError(f"a curve of {points} points has no two ends; ask for 2 or more")
    if confidence_NT.size == 0:  # a single exit: nothing to decide
        return np.array([NEVER])
    observed = np.sort(confidence_NT, axis=None)
    steps = np.linspace(0, len(observed) - 1, points)[1:-1].astype(np.int64)
    # Neighbours that differ: the next observation above each step, none above the largest.
    next_above = np.searchsorted(observed, observed[steps], side="right")
    steps, next_above = steps[next_above < len(observed)], next_above[next_above < len(observed)]
    below, above = observed[steps], observed[next_above]
    midway = below + (above - below) / 2
    midway = np.where(midway < above, midway, below)  # the next floating-point number has no middle
    return np.unique(np.concatenate([[0.0], midway, [NEVER]]))


def efficient(cost_P: NDArray[np.float64], accuracy_P: NDArray[np.float64]) -> NDArray[np.bool_]:
    """The Pareto-efficient points: nothing is both no dearer and no less accurate; of equal points the first stays."""
    # By cost, then by falling accuracy, then by position: a point is efficient if it beats all before it.
    order = np.lexsort((np.arange(len(cost_P)), -accuracy_P, cost_P))
    best_before = np.concatenate([[-np.inf], np.maximum.accumulate(accuracy_P[order])[:-1]])
    answer_P = np.zeros(len(cost_P), dtype=np.bool_)
    answer_P[order] = accuracy_P[order] > best_before
    return answer_P
