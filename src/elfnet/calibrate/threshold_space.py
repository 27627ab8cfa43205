"""Cost and correct predictions at many points of the space of thresholds, computed without replaying each point.

Two thresholds of an exit are equivalent if the same examples continue to the next exit. So each exit has one candidate
between any two neighbouring confidences, and a point is given by the indices of its candidates. If one example
continues from an exit to the next, the totals change by the difference of its two outcomes. Histograms of these
differences give all points of a grid with a few passes over the examples.
"""

# Shapes: P points, N examples, E exits, T = E - 1 thresholds, G frequency groups, M a subset or reordering of examples,
#         Q = G + 2 quantities: correct predictions by group, expected correct predictions, cost

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elfnet.calibrate.calibration_table import ROUNDING
from elfnet.data.long_tail import GROUP_NAMES
from elfnet.evaluate.policy_replay import ExitConfidences
from elfnet.evaluate.trade_off import spread_thresholds
from elfnet.exits.policy import NEVER, cost_to_exit

GROUPS = len(GROUP_NAMES)
EXPECTED, COST = GROUPS, GROUPS + 1


@dataclass(frozen=True, eq=False)
class Outcomes:
    """Correct predictions and cost of P points, weighted to the target mix of the table.

    Attributes:
        right_P: number of correct predictions.
        right_PG: number of correct predictions by frequency group.
        expected_P: number of correct predictions to expect.
        cost_P: mean cost, rounded to multiples of `ROUNDING`, so that equal costs compare as equal.
    """

    right_P: NDArray[np.float64]
    right_PG: NDArray[np.float64]
    expected_P: NDArray[np.float64]
    cost_P: NDArray[np.float64]


class ThresholdSpace:
    """All distinct thresholds of one table, prepared for fast totals.

    Args:
        confidences: confidences of the exits, with their table.
        used: indices of the early exits that have a threshold, ascending; all by default. The heads of the others are
            not run. All shapes below cover the used exits and the last one only.
        expected_NE: how often each example is expected to be correct at each exit; by default as on the table.

    Attributes:
        used: see above.
        candidates: for each used early exit, all distinct thresholds on this table, ascending, from 0 (all examples
            exit) to `NEVER`; those between lie midway between observed confidences.
        size_G: number of examples by frequency group, weighted to the target mix of the table.
    """

    def __init__(
        self,
        confidences: ExitConfidences,
        used: Sequence[int] | None = None,
        *,
        expected_NE: NDArray[np.float64] | None = None,
    ) -> None:
        table = confidences.table
        self.used = tuple(range(table.exits - 1) if used is None else used)
        columns = [*self.used, table.exits - 1]
        confidence_NE, correct_NE = confidences.confidence_NE[:, columns], confidences.correct_NE[:, columns]
        cost_E = _cost_with(confidences, self.used)[columns]
        group_N = table.group_of_class[table.labels_N]
        weight_N = table.example_weights()
        self.size_G = np.bincount(group_N, weights=weight_N, minlength=GROUPS).astype(np.float64)
        self.candidates: list[NDArray[np.float64]] = [
            spread_thresholds(confidence_N[:, None], table.examples + 2) for confidence_N in confidence_NE.T[:-1]
        ]
        self._examples = table.examples
        self._confidence_TN = np.ascontiguousarray(confidence_NE.T[:-1])
        self._running_TN = np.maximum.accumulate(self._confidence_TN, axis=0)
        # Index of the first candidate at which an example continues; the last candidate lets all continue.
        self._continues_from_TN = [
            np.searchsorted(candidates, confidence_N)
            for candidates, confidence_N in zip(self.candidates, self._confidence_TN, strict=True)
        ]
        # What an example adds to the totals if it exits at an exit.
        outcome_EQN = np.zeros((len(columns), GROUPS + 2, table.examples))
        outcome_EQN[:, group_N, np.arange(table.examples)] = correct_NE.T * weight_N
        outcome_EQN[:, EXPECTED] = (correct_NE if expected_NE is None else expected_NE[:, columns]).T * weight_N
        outcome_EQN[:, COST] = cost_E[:, None] * weight_N
        self._all_at_first_Q = outcome_EQN[0].sum(axis=1)
        self._all_at_last_Q = outcome_EQN[-1].sum(axis=1)
        self._change_TQN = np.diff(outcome_EQN, axis=0)

    def positions(self, thresholds: Sequence[float]) -> tuple[int, ...]:
        """Return the indices of the candidates that are equivalent to these thresholds."""
        return tuple(
            int(continues_from_N[confidence_N <= threshold].max(initial=0))
            for continues_from_N, confidence_N, threshold in zip(
                self._continues_from_TN, self._confidence_TN, thresholds, strict=True
            )
        )

    def grid(self, axes: Sequence[NDArray[np.int64]]) -> Outcomes:
        """Return the outcomes of all combinations of the given positions, in C order of the axes.

        The totals start with all examples at the first exit. An example that continues at exits 1..k adds the
        difference between its outcomes at exits k + 1 and k. These differences are a histogram of k dimensions, and
        cumulative sums along all dimensions give the totals.

        Args:
            axes: ascending indices of candidates, one array per used early exit.
        """
        total_Q = [np.array(total) for total in self._all_at_first_Q]
        row_M, cell_M = np.arange(self._examples), np.zeros(self._examples, dtype=np.int64)
        shape: tuple[int, ...] = ()
        for k, axis in enumerate(axes):
            shape = (*shape, len(axis))
            continues_from_M = np.searchsorted(axis, self._continues_from_TN[k][row_M])
            continues_M = continues_from_M < len(axis)  # the others exit here at all points of this grid
            row_M, cell_M = row_M[continues_M], cell_M[continues_M] * len(axis) + continues_from_M[continues_M]
            for q, change_N in enumerate(self._change_TQN[k]):
                added = np.bincount(cell_M, weights=change_N[row_M], minlength=int(np.prod(shape))).reshape(shape)
                for dimension, length in enumerate(shape):
                    if length > 1:
                        np.cumsum(added, axis=dimension, out=added)
                total_Q[q] = total_Q[q][..., None] + added
        return self._outcomes(np.stack([total.ravel() for total in total_Q], axis=1))

    def uniform(self) -> tuple[NDArray[np.float64], Outcomes]:
        """Return all distinct thresholds s shared by all exits, ascending, shape (P,), and their outcomes."""
        # An example continues after exit k if s is at least its largest confidence so far.
        order = np.argsort(self._running_TN, axis=None, kind="stable")
        thresholds = spread_thresholds(self._running_TN.T, order.size + 2)
        continued_P = np.searchsorted(self._running_TN.ravel()[order], thresholds, side="right")
        change_MQ = self._change_TQN.transpose(0, 2, 1).reshape(-1, COST + 1)[order]
        sum_MQ = np.concatenate([np.zeros((1, COST + 1)), np.cumsum(change_MQ, axis=0)])
        return thresholds, self._outcomes(self._all_at_first_Q + sum_MQ[continued_P])

    def thresholds(self, position_T: Sequence[int], exits: int) -> tuple[float, ...]:
        """Return the thresholds at these positions for a network of `exits` exits; unused exits have `NEVER`."""
        thresholds = [NEVER] * (exits - 1)
        for exit_index, candidates, position in zip(self.used, self.candidates, position_T, strict=True):
            thresholds[exit_index] = float(candidates[position])
        return tuple(thresholds)

    def full_depth(self) -> Outcomes:
        """Outcomes of one point: all examples use the full depth."""
        return self._outcomes(self._all_at_last_Q[None])

    def _outcomes(self, total_PQ: NDArray[np.float64]) -> Outcomes:
        right_PG = total_PQ[:, :GROUPS]
        # Sums in another order differ in the last bits, and equal points must compare as equal.
        right_P, expected_P, cost_P = (
            np.rint(value_P / ROUNDING) * ROUNDING
            for value_P in (right_PG.sum(axis=1), total_PQ[:, EXPECTED], total_PQ[:, COST] / self._examples)
        )
        return Outcomes(right_P, right_PG, expected_P, cost_P)


def _cost_with(confidences: ExitConfidences, used: Sequence[int]) -> NDArray[np.float64]:
    """Cost up to each exit of the network, shape (E,), if only the heads of these early exits and the last are run."""
    table = confidences.table
    thresholds = tuple(0.5 if k in used else NEVER for k in range(table.exits - 1))
    policy = confidences.policy("exits in use", thresholds)
    return cost_to_exit(table.cost_E, table.head_cost_E, policy)
