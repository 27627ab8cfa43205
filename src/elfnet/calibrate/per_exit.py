"""One threshold per exit: the most accurate thresholds within a budget, or the cheapest above an accuracy floor.

On the table that they are fitted on, they are never worse than the line search, which has one threshold for all exits.
Part of the gain is overfitting to that table: confirm it on the test split. Of equally good thresholds the highest are
used, so that examples exit later.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from elfnet.calibrate.calibration_table import ROUNDING, require_budget, require_calibration
from elfnet.calibrate.threshold_search import AboveFloor, ThresholdSearch, WithinBudget
from elfnet.data.long_tail import GROUP_NAMES
from elfnet.errors import RequestError
from elfnet.evaluate.confidence import ExitConfidences
from elfnet.exits.policy import Policy


def thresholds_for_budget(confidences: ExitConfidences, budget: float, *, name: str | None = None) -> Policy:
    """Return the most accurate thresholds whose mean cost on this table is at most the budget.

    Args:
        confidences: from the calibration split; the test split is refused.
        budget: largest mean cost, in the table's unit (by default multiply-adds relative to the plain backbone).
        name: name of the policy; `budget=0.6` by default.
    """
    (policy,) = family_for_budgets(confidences, [budget])
    return policy if name is None else replace(policy, name=name)


def family_for_budgets(confidences: ExitConfidences, budgets: Sequence[float]) -> tuple[Policy, ...]:
    """Return one policy per budget, named like `budget=0.6`; on this table a larger budget is never less accurate."""
    require_calibration(confidences.table)
    for budget in budgets:
        require_budget(confidences.table, budget)
    names = [f"budget={budget:g}" for budget in budgets]
    for name in names:
        if names.count(name) > 1:
            raise RequestError(f"{name} is given twice; give each budget once")
    search = ThresholdSearch(confidences)
    found: dict[float, tuple[float, ...]] = {}
    for budget in sorted(budgets):
        # The solution of a smaller budget is valid for a larger one: use it as a further start.
        found[budget] = search.best(WithinBudget(budget), also=list(found.values())[-1:])
    return tuple(confidences.policy(name, found[budget]) for name, budget in zip(names, budgets, strict=True))


def thresholds_for_floor(
    confidences: ExitConfidences, floor: float, *, group: str | None = None, name: str | None = None
) -> Policy:
    """Return the cheapest thresholds whose accuracy on this table is at least the floor.

    Args:
        confidences: from the calibration split; the test split is refused.
        floor: smallest accuracy, between 0 and the accuracy of full depth.
        group: the examples that the floor applies to: None for all, the name of a frequency group, or "worst" for the
            group with the lowest accuracy, which protects the rare classes.
        name: name of the policy; `floor=0.7` by default.
    """
    require_calibration(confidences.table)
    search = ThresholdSearch(confidences)
    goal = AboveFloor(floor, group, search.size_G)
    _require_floor(confidences, goal, search)
    name = f"floor={floor:g}" if name is None else name
    return confidences.policy(name, search.best(goal))


def _require_floor(confidences: ExitConfidences, goal: AboveFloor, search: ThresholdSearch) -> None:
    choices = [name for name, size in zip(GROUP_NAMES, goal.size_G, strict=True) if size]
    if goal.group not in (None, "worst", *choices):
        problem = "has no examples" if goal.group in GROUP_NAMES else "is unknown"
        raise RequestError(
            f"frequency group {goal.group!r} {problem} in the {confidences.table.split} exit table; "
            f"choose from: {', '.join([*choices, 'worst'])}"
        )
    if not 0.0 <= goal.floor <= 1.0:
        raise RequestError(f"accuracy floor {goal.floor!r} is not between 0 and 1; give a fraction, such as 0.7")
    reachable = float(goal.accuracy(search.full_depth())[0])
    if goal.floor > reachable + ROUNDING:
        whose = {None: "", "worst": " of the worst group"}.get(goal.group, f" of group {goal.group!r}")
        # Rounded down, so that the number in the message is itself a valid floor.
        raise RequestError(
            f"accuracy floor {goal.floor:g}{whose} is above what full depth reaches; "
            f"give {np.floor(reachable * 1e4 + ROUNDING) / 1e4:g} or less"
        )
