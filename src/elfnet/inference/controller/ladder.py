"""The ladder of operating points, and the state machine that decides when to move on it and how far.

A move down happens at once when the target is missed; a move up only after a wait. Every gap between two neighbouring
rungs has its own wait, which doubles whenever a move up across this gap is reversed. Only a new phase (a detected
change of the inputs, or a new target) resets the waits.

**Bound.** In a phase of n windows on a ladder of P rungs there are at most 2 (P - 1) (1 + log2 n) moves, whatever is
observed. Proof: take one of the P - 1 gaps. Within the phase it is crossed up and down in turn. A crossing down that
follows a crossing up doubles the wait of the gap, so after r of them the wait is 2^r windows. The next crossing up
comes at least 2^r windows after the last crossing down (for r = 0: after the start of the phase), and the next
crossing down at least one window later. So R >= 1 such pairs take at least sum(2^r + 1 for r = 0 .. R - 1) =
2^R - 1 + R >= 2^R windows, hence R <= log2 n. Besides these R pairs there is at most one crossing down before them and
one up after them: at most 2 + 2 log2 n crossings of this gap. Every move crosses at least one gap.

A stream whose mix never changes has one phase with probability 1 - `false_alarm`, however long it is (see
`MixChange`): it makes O(log n) moves. If the mix changes, the bound holds per phase; there is never more than one move
per window.
"""

# Shapes: P rungs of the ladder, the cheapest first

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from elfnet.calibrate.point_family import Family
from elfnet.errors import RequestError
from elfnet.evaluate.trade_off import efficient


@dataclass(frozen=True)
class Ladder:
    """The efficient operating points in order of cost; each rung costs more and is more accurate than the one below.

    Attributes:
        names: Names of the operating points.
        mean_cost: Mean cost on the calibration split, rising; relative to the plain backbone.
        worst_cost: Upper bound of the cost of an example at this point and at all cheaper ones.
    """

    names: tuple[str, ...]
    mean_cost: tuple[float, ...]
    worst_cost: tuple[float, ...]

    @classmethod
    def of(cls, family: Family) -> Self:
        """Build the ladder of a family from its Pareto-efficient points (mean cost and balanced accuracy)."""
        cost_P = np.array([point.expected.mean_cost for point in family.points])
        accuracy_P = np.array([point.expected.balanced_accuracy for point in family.points])
        kept = np.flatnonzero(efficient(cost_P, accuracy_P))
        points = [family.points[i] for i in kept[np.argsort(cost_P[kept])]]
        worst_P = np.maximum.accumulate([point.expected.worst_cost for point in points])
        return cls(
            names=tuple(point.name for point in points),
            mean_cost=tuple(point.expected.mean_cost for point in points),
            worst_cost=tuple(worst_P.tolist()),
        )

    def __len__(self) -> int:
        return len(self.names)

    def require_cost(self, target: float) -> None:
        """Refuse a mean cost below that of the cheapest rung, or above the worst case of the highest rung."""
        if not self.mean_cost[0] <= target <= self.worst_cost[-1]:
            # NaN is refused too: it compares as false.
            raise RequestError(
                f"target cost {target:g} cannot be held; give a value from {self.mean_cost[0]:.4g} (mean cost of the "
                f"cheapest point, {self.names[0]!r}) to {self.worst_cost[-1]:.4g} (worst case of {self.names[-1]!r})"
            )

    def scaled(self, value: float, at: int) -> tuple[float, ...]:
        """Predict the value on each rung for the present inputs, shape (P,), from the value on rung `at`.

        value_j = value * c_j / c_at with the expected mean costs c. This assumes that the drift, value / c_at, is equal
        on all rungs. Where that is wrong, a move up is reversed, and then tried less and less often.
        """
        return tuple(value * cost / self.mean_cost[at] for cost in self.mean_cost)


def highest_within(predicted: Sequence[float], target: float) -> int:
    """Return the highest rung whose prediction is within the target; 0 if there is none."""
    within = [rung for rung, value in enumerate(predicted) if value <= target]
    return max(within, default=0)


class Stepper:
    """The present rung and the waits before the next move up. Makes one decision per window.

    Args:
        rungs: Length of the ladder.
        start: The first rung.
        far_off: Relative distance from the target from which a move may cross several rungs.
    """

    def __init__(self, rungs: int, start: int, *, far_off: float) -> None:
        self._gaps, self._far_off = rungs - 1, far_off
        self.rung = start
        self.moves = 0
        self.new_phase()

    @property
    def wait(self) -> int:
        """Windows that must pass between the last move down to this rung and the next move up; 0 on the top rung."""
        return self._wait[self.rung] if self.rung < self._gaps else 0

    def new_phase(self) -> None:
        """Reset the waits, because the inputs or the target have changed."""
        self._wait = [1] * self._gaps
        self._since_down = [0] * self._gaps
        self._climbed = [False] * self._gaps

    def jump(self, rung: int) -> None:
        """Move to the rung for a new target, and start a new phase."""
        self.new_phase()
        self.moves += rung != self.rung
        self.rung = rung

    def decide(self, *, overloaded: bool, value: float, predicted: Sequence[float], target: float) -> bool:
        """Decide after a window, and return whether the rung has changed.

        Args:
            overloaded: Whether the target is missed by more than noise and dead band.
            value: Measured value on the present rung.
            predicted: Predicted value per rung, rising.
            target: The value to hold.
        """
        self._since_down = [windows + 1 for windows in self._since_down]
        fitting = highest_within(predicted, target)
        before = self.rung
        if overloaded and self.rung > 0:
            far = value > target * (1.0 + self._far_off)
            self._descend(min(fitting, self.rung - 1) if far else self.rung - 1)
        elif not overloaded and fitting > self.rung:
            far = value < target * (1.0 - self._far_off)
            self._climb(fitting if far else self.rung + 1)
        self.moves += self.rung != before
        return self.rung != before

    def _descend(self, rung: int) -> None:
        for gap in range(rung, self.rung):
            self._wait[gap] *= 2 if self._climbed[gap] else 1
            self._since_down[gap] = 0
        self.rung = rung

    def _climb(self, rung: int) -> None:
        """Move up to `rung`, or as far as the waits allow."""
        while self.rung < rung and self._since_down[self.rung] >= self._wait[self.rung]:
            self._climbed[self.rung] = True
            self.rung += 1
