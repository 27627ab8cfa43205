"""Cost and right answers at many points of the space of per-exit thresholds, counted without replaying each point.

A threshold matters only through whom it holds back, so every exit has one candidate between any two neighbouring
confidences and a point is given by the candidates' positions. Moving one example on from an exit to the next changes
the sums by the difference between its two outcomes; histograms of these differences give all points of a grid at the
price of a few passes over the examples, whether the grid is a line, a small neighbourhood or the whole space.
"""

# Shapes: P points, N examples, E exits, T = E - 1 thresholds, G frequency groups,
#         Q = G + 1 quantities: right answers by group, then cost

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elfnet.calibrate.calibration_table import ROUNDING
from elfnet.data.long_tail import GROUP_NAMES
from elfnet.evaluate.confidence import ExitConfidences
from elfnet.evaluate.curve import spread_thresholds
from elfnet.exits.policy import NEVER, cost_to_exit

GROUPS = len(GROUP_NAMES)


@dataclass(frozen=True, eq=False)
class Outcomes:
    """Figures of P points.

    Attributes:
        right_P: number of right answers.
        right_PG: the same by frequency group.
        cost_P: mean cost, rounded to multiples of `ROUNDING`, so that equal costs compare as equal.
    """

    right_P: NDArray[np.float64]
    right_PG: NDArray[np.float64]
    cost_P: NDArray[np.float64]


class ThresholdSpace:
    """One table, prepared for counting.

    Args:
        confidences: from the table.
        used: the early exits that have a threshold, from 0 and rising; the heads of the others are not run. All by
            default. Everything below speaks of these exits and the last one only.

    Attributes:
        candidates: for each exit but the last, every threshold that makes a difference on this table, rising, from 0
            (all leave) to `NEVER`; the others lie midway between observed confidences.
        size_G: number of examples by frequency group.
    """

    def __init__(self, confidences: ExitConfidences, used: Sequence[int] | None = None) -> None:
        table = confidences.table
        self.used = tuple(range(table.exits - 1) if used is None else used)
        columns = [*self.used, table.exits - 1]
        confidence_NE, correct_NE = confidences.confidence_NE[:, columns], confidences.correct_NE[:, columns]
        cost_E = _cost_with(confidences, self.used)[columns]
        group_N = table.group_of_class[table.labels_N]
        self.size_G: NDArray[np.int64] = np.bincount(group_N, minlength=GROUPS)
        self.candidates: list[NDArray[np.float64]] = [
            spread_thresholds(confidence_N[:, None], table.examples + 2) for confidence_N in confidence_NE.T[:-1]
        ]
        self._examples = table.examples
        self._confidence_TN = np.ascontiguousarray(confidence_NE.T[:-1])
        self._running_TN = np.maximum.accumulate(self._confidence_TN, axis=0)
        # The position of the first candidate that holds an example back: nobody is more confident than the last.
        self._held_from_TN = [
            np.searchsorted(candidates, confidence_N)
            for candidates, confidence_N in zip(self.candidates, self._confidence_TN, strict=True)
        ]
        # What an example counts for if it leaves at an exit.
        outcome_EQN = np.zeros((len(columns), GROUPS + 1, table.examples))
        outcome_EQN[:, group_N, np.arange(table.examples)] = correct_NE.T
        outcome_EQN[:, -1] = cost_E[:, None]
        self._all_at_first_Q = outcome_EQN[0].sum(axis=1)
        self._all_at_last_Q = outcome_EQN[-1].sum(axis=1)
        self._moving_on_TQN = np.diff(outcome_EQN, axis=0)

    def positions(self, thresholds: Sequence[float]) -> tuple[int, ...]:
        """The candidates that let the same examples leave as these thresholds do."""
        return tuple(
            int(held_from_N[confidence_N <= threshold].max(initial=0))
            for held_from_N, confidence_N, threshold in zip(
                self._held_from_TN, self._confidence_TN, thresholds, strict=True
            )
        )

    def grid(self, axes: Sequence[NDArray[np.int64]]) -> Outcomes:
        """All combinations of the given positions, which rise on each axis; in C order of the axes.

        Everybody leaves at the first exit, except that an example held back by exits 1..k adds what moving on from
        exit k to k + 1 changes: a histogram of k dimensions, summed up along each of them.
        """
        total_Q = [np.array(total) for total in self._all_at_first_Q]
        row_M, cell_M = np.arange(self._examples), np.zeros(self._examples, dtype=np.int64)
        shape: tuple[int, ...] = ()
        for k, axis in enumerate(axes):
            shape = (*shape, len(axis))
            held_from_M = np.searchsorted(axis, self._held_from_TN[k][row_M])
            held_M = held_from_M < len(axis)  # the others leave here at all points of this grid
            row_M, cell_M = row_M[held_M], cell_M[held_M] * len(axis) + held_from_M[held_M]
            for q, change_N in enumerate(self._moving_on_TQN[k]):
                added = np.bincount(cell_M, weights=change_N[row_M], minlength=int(np.prod(shape))).reshape(shape)
                for dimension, length in enumerate(shape):
                    if length > 1:
                        np.cumsum(added, axis=dimension, out=added)
                total_Q[q] = total_Q[q][..., None] + added
        return self._outcomes(np.stack([total.ravel() for total in total_Q], axis=1))

    def uniform(self) -> tuple[NDArray[np.float64], Outcomes]:
        """Every threshold s that makes a difference if it is the same at all exits, rising: (s (P,), outcomes)."""
        # An example moves on from exit k where s reaches its largest confidence so far.
        order = np.argsort(self._running_TN, axis=None, kind="stable")
        thresholds = spread_thresholds(self._running_TN.T, order.size + 2)
        moved_P = np.searchsorted(self._running_TN.ravel()[order], thresholds, side="right")
        change_MQ = self._moving_on_TQN.transpose(0, 2, 1).reshape(-1, GROUPS + 1)[order]
        sum_MQ = np.concatenate([np.zeros((1, GROUPS + 1)), np.cumsum(change_MQ, axis=0)])
        return thresholds, self._outcomes(self._all_at_first_Q + sum_MQ[moved_P])

    def thresholds(self, position_T: Sequence[int], exits: int) -> tuple[float, ...]:
        """The thresholds at these positions for a network of `exits` exits: `NEVER` at the exits that are not used."""
        answer = [NEVER] * (exits - 1)
        for exit_index, candidates, position in zip(self.used, self.candidates, position_T, strict=True):
            answer[exit_index] = float(candidates[position])
        return tuple(answer)

    def full_depth(self) -> Outcomes:
        """Nobody leaves early: one point."""
        return self._outcomes(self._all_at_last_Q[None])

    def _outcomes(self, total_PQ: NDArray[np.float64]) -> Outcomes:
        cost_P = np.rint(total_PQ[:, -1] / self._examples / ROUNDING) * ROUNDING
        return Outcomes(total_PQ[:, :-1].sum(axis=1), total_PQ[:, :-1], cost_P)


def _cost_with(confidences: ExitConfidences, used: Sequence[int]) -> NDArray[np.float64]:
    """Cost up to each exit of the network, shape (E,), if only these early exits and the last are looked at."""
    table = confidences.table
    thresholds = tuple(0.5 if k in used else NEVER for k in range(table.exits - 1))
    policy = confidences.policy("exits in use", thresholds)
    return cost_to_exit(table.cost_E, table.head_cost_E, policy)
