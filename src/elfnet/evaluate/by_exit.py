"""How good each exit is when everybody is made to leave there."""

# Shapes: N examples, E exits, G frequency groups

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from elfnet.data.groups import GROUP_NAMES
from elfnet.errors import RequestError
from elfnet.evaluate.calibration_error import calibration_error
from elfnet.evaluate.derived import Derived


@dataclass(frozen=True)
class ExitQuality:
    """One exit, taken by all examples.

    Attributes:
        exit: counted from 1, as in the paper.
        cost: multiply-adds up to and including this exit, relative to the plain backbone.
        accuracy: share of right answers.
        accuracy_by_group: the same by frequency group; None for a group without examples.
        mean_confidence: at the confidence scale of inference.
        calibration_error: 15 equal bins, top label, at the confidence scale of inference.
    """

    exit: int
    cost: float
    accuracy: float
    accuracy_by_group: dict[str, float | None]
    mean_confidence: float
    calibration_error: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def by_exit(derived: Derived) -> tuple[ExitQuality, ...]:
    """The quality of every exit, in order."""
    table = derived.table
    if table.examples == 0:
        raise RequestError(f"the {table.split} exit table has no examples; evaluate a split that has some")
    group_N = table.group_of_class[table.labels_N]
    members = {name: group_N == index for index, name in enumerate(GROUP_NAMES)}
    qualities = []
    for k in range(table.exits):
        correct_N, confidence_N = derived.correct_NE[:, k], derived.confidence_NE[:, k]
        qualities.append(
            ExitQuality(
                exit=k + 1,
                cost=float(table.cost_E[k]),
                accuracy=float(np.mean(correct_N)),
                accuracy_by_group={
                    name: float(np.mean(correct_N[member_N])) if member_N.any() else None
                    for name, member_N in members.items()
                },
                mean_confidence=float(np.mean(confidence_N)),
                calibration_error=calibration_error(confidence_N, correct_N),
            )
        )
    return tuple(qualities)
