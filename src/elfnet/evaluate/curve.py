"""The accuracy-FLOPs curve of a model: one threshold for all exits, from 0 (all leave at once) to 1 (none early)."""

# Shapes: P operating points, N examples, E exits, T = E - 1 thresholds

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elfnet.data.groups import GROUP_NAMES
from elfnet.errors import RequestError
from elfnet.evaluate.derived import Derived
from elfnet.evaluate.sweep import sweep_uniform
from elfnet.exits.policy import NEVER


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


def curve(derived: Derived, *, points: int = 200) -> tuple[CurvePoint, ...]:
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
