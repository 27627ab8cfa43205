"""Search for the best thresholds, one per exit: a coarse grid, then a local search with decreasing steps.

The result is not always the optimum. It is no worse than any single threshold for all exits, and changing one of its
thresholds alone does not improve it.
"""

# Shapes: P points, G frequency groups, T = E - 1 thresholds

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from elfnet.calibrate.calibration_table import ROUNDING
from elfnet.calibrate.threshold_space import Outcomes, ThresholdSpace
from elfnet.data.long_tail import GROUP_NAMES
from elfnet.evaluate.policy_replay import ExitConfidences
from elfnet.exits.policy import NEVER

GRID_CELLS = 2**18
"""Points of the coarse grid: 512 thresholds per exit for two early exits, 64 for three, 12 for five."""

MAX_EXITS_FOR_ALL_SUBSETS = 4
"""With up to this many early exits all subsets are tried; with more, only all exits, all but one, and none."""

NEIGHBOURS = np.arange(-2, 3)
"""Steps of the local search, tried at all exits at once, so that one exit can save the cost that another one adds."""

Value = tuple[float, float]
"""Value of a point: what is maximised, then what decides between equals."""

Position = tuple[int, ...]
"""A point, by the index of its threshold among the candidates of each exit."""


class Goal(Protocol):
    """The objective of a search, with a limit that points must respect."""

    def value(self, outcomes: Outcomes) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return what is maximised (-inf for points that break the limit) and the tie-breaker, each of shape (P,)."""


@dataclass(frozen=True)
class WithinBudget:
    """Highest expected accuracy at a mean cost of at most `budget`; of equals the most expensive, the most cautious."""

    budget: float

    def value(self, outcomes: Outcomes) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        allowed_P = outcomes.cost_P <= self.budget + ROUNDING
        return np.where(allowed_P, outcomes.expected_P, -np.inf), outcomes.cost_P


@dataclass(frozen=True, eq=False)
class AboveFloor:
    """Lowest mean cost at an accuracy of at least `floor`; of equals the most accurate."""

    floor: float
    group: str | None
    size_G: NDArray[np.float64]

    def accuracy(self, outcomes: Outcomes) -> NDArray[np.float64]:
        """Accuracy of all examples, of one group, or of the worst group that has examples; shape (P,).

        That of all examples is the counted or the expected one, whichever is lower.
        """
        if self.group is None:
            overall_P: NDArray[np.float64] = np.minimum(outcomes.right_P, outcomes.expected_P) / self.size_G.sum()
            return overall_P
        if self.group == "worst":
            present_G = self.size_G > 0
            worst_P: NDArray[np.float64] = (outcomes.right_PG[:, present_G] / self.size_G[present_G]).min(axis=1)
            return worst_P
        index = GROUP_NAMES.index(self.group)
        group_P: NDArray[np.float64] = outcomes.right_PG[:, index] / self.size_G[index]
        return group_P

    def value(self, outcomes: Outcomes) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        accuracy_P = self.accuracy(outcomes)
        return np.where(accuracy_P >= self.floor - ROUNDING, -outcomes.cost_P, -np.inf), accuracy_P


class ThresholdSearch:
    """Search for thresholds on one table; one instance serves several goals.

    An early exit may save less than its head costs. The search therefore tries subsets of the early exits; the heads of
    unused exits are not run. A policy that combines exits needs all of them.

    Args:
        confidences: from the calibration split.
        expected_NE: how often each example is expected to be correct at each exit, such as `expected_correct`; by
            default as on the table.
        cells: number of points of the coarse grid; fewer are faster and slightly worse.
    """

    def __init__(
        self,
        confidences: ExitConfidences,
        *,
        expected_NE: NDArray[np.float64] | None = None,
        cells: int | None = None,
    ) -> None:
        self._exits = confidences.table.exits
        self._searches = [
            _SubsetSearch(ThresholdSpace(confidences, used, expected_NE=expected_NE), cells or GRID_CELLS)
            for used in _exit_subsets(confidences)
        ]
        self.size_G = self._searches[0].space.size_G

    def best(self, goal: Goal, *, also: Sequence[tuple[float, ...]] = (), refine: bool = True) -> tuple[float, ...]:
        """Return the best thresholds that the search finds.

        Args:
            goal: the objective; at least one point must respect its limit.
            also: further points to start from.
            refine: whether to run the local search from the best start; it takes most of the time.
        """
        starts = [(search, search.start(goal, also)) for search in self._searches]
        possible = [(search, start) for search, start in starts if start is not None]
        assert possible, "the caller has checked that some point respects the limit"
        # Only the best subset is refined: refining the second and third best as well changed nothing in experiments.
        search, start = max(possible, key=lambda pair: pair[1])
        position_T = search.refine_from(goal, *start) if refine else start[1]
        return search.space.thresholds(position_T, self._exits)

    def full_depth(self) -> Outcomes:
        """Outcomes of one point: all examples use the full depth."""
        return self._searches[0].space.full_depth()


def _exit_subsets(confidences: ExitConfidences) -> list[tuple[int, ...]]:
    """Return the subsets of early exits to try; the first is the full set."""
    early = tuple(range(confidences.table.exits - 1))
    if confidences.combine or confidences.table.head_cost_E is None or not early:
        return [early]
    if len(early) <= MAX_EXITS_FOR_ALL_SUBSETS:
        return [used for size in range(len(early), -1, -1) for used in combinations(early, size)]
    return [early, *(tuple(k for k in early if k != left_out) for left_out in early), ()]


class _SubsetSearch:
    """The search with one subset of the early exits."""

    def __init__(self, space: ThresholdSpace, cells: int) -> None:
        self.space = space
        last_T = [len(candidates) - 1 for candidates in space.candidates]
        if not last_T:
            return
        points = int((cells + 0.5) ** (1 / len(last_T)))
        self._axes = [np.unique(np.linspace(0, last, min(points, last + 1)).astype(np.int64)) for last in last_T]
        self._grid = space.grid(self._axes)
        self._uniform = space.uniform()
        self._first_step = max(1, max(last_T) // points)

    def start(self, goal: Goal, also: Sequence[tuple[float, ...]]) -> tuple[Value, Position] | None:
        """Return the best start with its value; None if all starts break the limit."""
        if not self.space.candidates:  # no early exit is used
            main_P, tie_P = goal.value(self.space.full_depth())
            return None if main_P[0] == -np.inf else ((float(main_P[0]), float(tie_P[0])), ())
        starts = [
            self.space.positions([thresholds[k] for k in self.space.used])
            for thresholds in also
            if self.space.used == tuple(k for k, threshold in enumerate(thresholds) if threshold < NEVER)
        ]
        found = _best_position(goal, self._grid)
        if found is not None:
            index_T = np.unravel_index(found, [len(axis) for axis in self._axes])
            starts.append(tuple(int(axis[index]) for axis, index in zip(self._axes, index_T, strict=True)))
        thresholds_P, outcomes = self._uniform
        found = _best_position(goal, outcomes)
        if found is not None:
            starts.append(self.space.positions((float(thresholds_P[found]),) * len(self._axes)))
        return max((self._step(goal, [np.array([p]) for p in start]) for start in starts), default=None)

    def refine_from(self, goal: Goal, value: Value, position_T: Position) -> Position:
        """Move to the best neighbour while it is better, with decreasing steps; then optimise exit by exit."""
        if not position_T:
            return position_T
        step = self._first_step
        while step:
            moved, to_T = self._step(goal, [self._within(k, p + step * NEIGHBOURS) for k, p in enumerate(position_T)])
            if moved > value:
                value, position_T = moved, to_T
            else:
                step //= 2
        improving = True
        while improving:
            before = value
            for k, candidates in enumerate(self.space.candidates):
                axes = [np.array([p]) for p in position_T]
                axes[k] = np.arange(len(candidates))
                value, position_T = self._step(goal, axes)
            improving = value > before
        return position_T

    def _within(self, exit_index: int, position: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.unique(np.clip(position, 0, len(self.space.candidates[exit_index]) - 1))

    def _step(self, goal: Goal, axes: list[NDArray[np.int64]]) -> tuple[Value, Position]:
        """Return the best of all combinations of these positions, with its value."""
        outcomes = self.space.grid(axes)
        found = _best_position(goal, outcomes)
        assert found is not None, "the current point is among them and respects the limit"
        main_P, tie_P = goal.value(outcomes)
        index_T = np.unravel_index(found, [len(axis) for axis in axes])
        position_T = tuple(int(axis[index]) for axis, index in zip(axes, index_T, strict=True))
        return (float(main_P[found]), float(tie_P[found])), position_T


def _best_position(goal: Goal, outcomes: Outcomes) -> int | None:
    """Return the index of the best point; of equals the last (highest thresholds). None if all break the limit."""
    main_P, tie_P = goal.value(outcomes)
    best = main_P.max()
    if best == -np.inf:
        return None
    equal = np.flatnonzero(main_P == best)
    return int(equal[np.flatnonzero(tie_P[equal] == tie_P[equal].max())[-1]])
