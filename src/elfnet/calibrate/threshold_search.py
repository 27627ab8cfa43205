"""The search for the best point among all per-exit thresholds: a coarse grid, then ever smaller steps.

It need not find the optimum, but it ends at a point that is no worse than any single threshold for all exits and that
no change of one threshold alone improves.
"""

# Shapes: P points, G frequency groups, T = E - 1 thresholds

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from elfnet.calibrate.require_calibration import ROUNDING
from elfnet.calibrate.threshold_space import Outcomes, ThresholdSpace
from elfnet.data.groups import GROUP_NAMES
from elfnet.evaluate.derived import Derived

GRID_CELLS = 2**18
"""Points of the coarse grid: 512 x 512 thresholds for two early exits, 64 for each of three, 12 for each of five."""

NEIGHBOURS = np.arange(-2, 3)
"""Steps to either side that are tried at all exits at once, so that what one exit spends another can save."""

Value = tuple[float, float]
Position = tuple[int, ...]


class Goal(Protocol):
    """Which of two points is better."""

    def value(self, outcomes: Outcomes) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """What is to be largest and what decides between equals, shape (P,) each; -inf where the limit is broken."""


@dataclass(frozen=True)
class WithinBudget:
    """The most right answers at a mean cost of at most `budget`; of equals the dearest, which is the most cautious."""

    budget: float

    def value(self, outcomes: Outcomes) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        allowed_P = outcomes.cost_P <= self.budget + ROUNDING
        return np.where(allowed_P, outcomes.right_P, -np.inf), outcomes.cost_P


@dataclass(frozen=True, eq=False)
class AboveFloor:
    """The least mean cost at an accuracy of at least `floor`; of equals the most accurate."""

    floor: float
    group: str | None
    size_G: NDArray[np.int64]

    def accuracy(self, outcomes: Outcomes) -> NDArray[np.float64]:
        """Overall, of one group, or of the worst one that has examples; shape (P,)."""
        if self.group is None:
            overall_P: NDArray[np.float64] = outcomes.right_P / self.size_G.sum()
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
    """The points to start from, which serve every goal, and the way on from there."""

    def __init__(self, derived: Derived) -> None:
        self.space = ThresholdSpace(derived)
        last_T = [len(candidates) - 1 for candidates in self.space.candidates]
        if not last_T:
            return
        points = int((GRID_CELLS + 0.5) ** (1 / len(last_T)))
        self._axes = [np.unique(np.linspace(0, last, min(points, last + 1)).astype(np.int64)) for last in last_T]
        self._grid = self.space.grid(self._axes)
        self._uniform = self.space.uniform()
        self._first_step = max(1, max(last_T) // points)

    def best(self, goal: Goal, *, also: Sequence[tuple[float, ...]] = ()) -> tuple[float, ...]:
        """Thresholds as good as the search finds them; `also` are further points to start from."""
        if not self.space.candidates:  # a single exit: nothing to decide
            return ()
        starts = [self.space.positions(thresholds) for thresholds in also]
        found = _best_position(goal, self._grid)
        if found is not None:
            index_T = np.unravel_index(found, [len(axis) for axis in self._axes])
            starts.append(tuple(int(axis[index]) for axis, index in zip(self._axes, index_T, strict=True)))
        thresholds_P, outcomes = self._uniform
        found = _best_position(goal, outcomes)
        if found is not None:
            starts.append(self.space.positions((float(thresholds_P[found]),) * len(self._axes)))
        value, position_T = max(self._step(goal, [np.array([p]) for p in start]) for start in starts)
        position_T = self._approach(goal, value, position_T)
        return tuple(
            float(candidates[position]) for candidates, position in zip(self.space.candidates, position_T, strict=True)
        )

    def _approach(self, goal: Goal, value: Value, position_T: Position) -> Position:
        """To the best neighbour while that is better, in ever smaller steps; then exit by exit."""
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
        """The best of all combinations of these positions, with its value."""
        outcomes = self.space.grid(axes)
        found = _best_position(goal, outcomes)
        assert found is not None, "the point that we come from keeps to the limit"
        main_P, tie_P = goal.value(outcomes)
        index_T = np.unravel_index(found, [len(axis) for axis in axes])
        position_T = tuple(int(axis[index]) for axis, index in zip(axes, index_T, strict=True))
        return (float(main_P[found]), float(tie_P[found])), position_T


def _best_position(goal: Goal, outcomes: Outcomes) -> int | None:
    """The best point, of equals the last, which has the highest thresholds; None if all break the limit."""
    main_P, tie_P = goal.value(outcomes)
    best = main_P.max()
    if best == -np.inf:
        return None
    equal = np.flatnonzero(main_P == best)
    return int(equal[np.flatnonzero(tie_P[equal] == tie_P[equal].max())[-1]])
