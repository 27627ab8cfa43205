"""The operating points that a controller moves along: the efficient ones, by rising cost."""

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
