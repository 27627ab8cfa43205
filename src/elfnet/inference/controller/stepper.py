"""When to move, and how far: the state machine that cannot oscillate without bound.

Down at once when the target is missed; up only after a wait. Between every two neighbouring rungs stands a wait of its
own, and it doubles each time that a climb over this place is taken back. Only a new phase (a detected change of the
inputs, or a new target) makes the waits short again.

**Bound.** In a phase of n windows on a ladder of P rungs there are at most 2 (P - 1) (1 + log2 n) moves, whatever is
observed. Proof: take one of the P - 1 places between rungs. The phase crosses it up and down in turn. A crossing down
that follows one up in the phase doubles the place's wait, so after r of them the wait is 2^r windows. The next
crossing up comes at least 2^r windows after the last crossing down (for r = 0: after the phase began), and the one
down at least one window after that. So R >= 1 of them take at least sum(2^r + 1 for r = 0 .. R - 1) = 2^R - 1 + R >=
2^R windows, hence R <= log2 n. Besides these R pairs there is at most one crossing down before them and one up after
them: at most 2 + 2 log2 n crossings of this place. Every move crosses at least one place.

A stream without change of mix has one phase with probability 1 - `false_alarm`, however long it is (see `MixChange`):
its moves are O(log n). Under changes there are the moves of each phase, and never more than one in a window.
"""

# Shapes: P rungs of the ladder, the cheapest first

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from elfnet.calibrate.family import Family
from elfnet.errors import RequestError
from elfnet.evaluate.curve import efficient


@dataclass(frozen=True)
class Ladder:
    """Names and expected costs of the rungs; each is dearer and more accurate than the one below.

    Attributes:
        names: of the operating points.
        mean_cost: expected on the calibration split, rising; relative to the plain backbone.
        worst_cost: what no example of this point, or of a cheaper one, exceeds.
    """

    names: tuple[str, ...]
    mean_cost: tuple[float, ...]
    worst_cost: tuple[float, ...]

    @classmethod
    def of(cls, family: Family) -> Self:
        """Without the points to which another is no dearer and no less accurate (balanced, calibration split)."""
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
        """Refuse a mean cost that the cheapest rung is not expected to keep, or that no input can exceed."""
        if not self.mean_cost[0] <= target <= self.worst_cost[-1]:
            # Also NaN, which compares as false.
            raise RequestError(
                f"target cost {target:g} cannot be held: give {self.mean_cost[0]:.4g} (expected of the cheapest "
                f"point, {self.names[0]!r}) to {self.worst_cost[-1]:.4g} (the most that {self.names[-1]!r} can cost)"
            )

    def scaled(self, value: float, at: int) -> tuple[float, ...]:
        """What each rung would give on the present inputs, shape (P,), if rung `at` gives `value`.

        value_j = value * c_j / c_at with the expected mean costs c: the drift seen here, value / c_at, is taken to be
        the same on every rung. It is not quite; a wrong step up is taken back and then tried ever more rarely.
        """
        return tuple(value * cost / self.mean_cost[at] for cost in self.mean_cost)


def highest_within(predicted: Sequence[float], target: float) -> int:
    """The highest rung predicted to stay within the target; the lowest rung if none is."""
    within = [rung for rung, value in enumerate(predicted) if value <= target]
    return max(within, default=0)


class Stepper:
    """The present rung, and the patience before the next try upwards. One decision per window.

    Args:
        rungs: length of the ladder.
        start: the rung to begin at.
        far_off: from this relative distance from the target on, a move may take several rungs.
    """

    def __init__(self, rungs: int, start: int, *, far_off: float) -> None:
        self._places, self._far_off = rungs - 1, far_off
        self.rung = start
        self.moves = 0
        self.new_phase()

    @property
    def wait(self) -> int:
        """Windows between the last way down past the place above and the next try up; 0 on the top rung."""
        return self._wait[self.rung] if self.rung < self._places else 0

    def new_phase(self) -> None:
        """The inputs or the target are no longer what the waits were learned from."""
        self._wait = [1] * self._places
        self._since_down = [0] * self._places
        self._climbed = [False] * self._places

    def jump(self, rung: int) -> None:
        """Go to the rung that a new target asks for; begins a phase."""
        self.new_phase()
        self.moves += rung != self.rung
        self.rung = rung

    def decide(self, *, overloaded: bool, value: float, predicted: Sequence[float], target: float) -> bool:
        """One window is over; True if the rung has changed.

        Args:
            overloaded: the target is missed beyond noise and dead band.
            value: what the present rung gives.
            predicted: what each rung would give, rising.
            target: what is to be held.
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
        for place in range(rung, self.rung):
            self._wait[place] *= 2 if self._climbed[place] else 1
            self._since_down[place] = 0
        self.rung = rung

    def _climb(self, rung: int) -> None:
        """As far up as the waits allow."""
        while self.rung < rung and self._since_down[self.rung] >= self._wait[self.rung]:
            self._climbed[self.rung] = True
            self.rung += 1
