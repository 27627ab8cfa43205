"""One threshold per exit: the most accurate within a budget, the cheapest above an accuracy floor, and a baseline.

Thresholds with the most correct predictions on few calibration examples are often lucky. Within a budget, the highest
expected accuracy therefore decides (`expected_correct`); above a floor, counted and expected accuracy must both be. The
accuracy of one frequency group is counted. By the same measure, the result is never worse than one threshold for all
exits. Of equally good thresholds the highest are used, so that examples exit later.

The baseline is MSDNet's geometric rule: the share of examples that exit at exit k is proportional to q^k.
"""

# Shapes: N examples, E exits, T = E - 1 thresholds

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from elfnet.calibrate.calibration_table import ROUNDING, require_budget, require_calibration
from elfnet.calibrate.confidence_scale import expected_correct
from elfnet.calibrate.threshold_search import AboveFloor, ThresholdSearch, WithinBudget
from elfnet.data.long_tail import GROUP_NAMES
from elfnet.errors import RequestError
from elfnet.evaluate.policy_replay import ExitConfidences
from elfnet.exits.policy import NEVER, Policy


def thresholds_for_budget(confidences: ExitConfidences, budget: float, *, name: str | None = None) -> Policy:
    """Return the thresholds of highest expected accuracy whose mean cost on this table is at most the budget.

    Args:
        confidences: from the calibration split; the test split is refused.
        budget: largest mean cost, in the table's unit (by default multiply-adds relative to the plain backbone).
        name: name of the policy; `budget=0.6` by default.

    Example:
        >>> from elfnet import compute_confidences, evaluate_run, open_run, thresholds_for_budget
        >>> confidences = compute_confidences(evaluate_run(open_run("runs/first"), "calibration"))
        >>> thresholds_for_budget(confidences, budget=0.6).name
        'budget=0.6'
    """
    (policy,) = family_for_budgets(confidences, [budget])
    return policy if name is None else replace(policy, name=name)


def family_for_budgets(confidences: ExitConfidences, budgets: Sequence[float]) -> tuple[Policy, ...]:
    """Return one policy per budget, named like `budget=0.6`; the expected accuracy never falls with the budget."""
    require_calibration(confidences.table)
    for budget in budgets:
        require_budget(confidences.table, budget)
    names = [f"budget={budget:g}" for budget in budgets]
    for name in names:
        if names.count(name) > 1:
            raise RequestError(f"{name} is given twice; give each budget once")
    search = ThresholdSearch(confidences, expected_NE=expected_correct(confidences))
    found: dict[float, tuple[float, ...]] = {}
    for budget in sorted(budgets):
        # The solution of a smaller budget is valid for a larger one: use it as a further start.
        found[budget] = search.best(WithinBudget(budget), also=list(found.values())[-1:])
    return tuple(confidences.policy(name, found[budget]) for name, budget in zip(names, budgets, strict=True))


def thresholds_for_floor(
    confidences: ExitConfidences, floor: float, *, group: str | None = None, name: str | None = None
) -> Policy:
    """Return the cheapest thresholds whose accuracy is at least the floor, counted on this table and expected.

    Args:
        confidences: from the calibration split; the test split is refused.
        floor: smallest accuracy, between 0 and the accuracy of full depth.
        group: the examples that the floor applies to: None for all, the name of a frequency group, or "worst" for the
            group with the lowest accuracy, which protects the rare classes. The accuracy of a group is counted.
        name: name of the policy; `floor=0.7` by default.

    Example:
        >>> from elfnet import compute_confidences, evaluate_run, open_run, thresholds_for_floor
        >>> confidences = compute_confidences(evaluate_run(open_run("runs/first"), "calibration"))
        >>> policy = thresholds_for_floor(confidences, floor=0.05)
    """
    require_calibration(confidences.table)
    search = ThresholdSearch(confidences, expected_NE=expected_correct(confidences))
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


MAX_LOG_Q = 50.0
"""At log q = 50 the rule sends all but e^-50 of the examples to the last exit, at -50 to the first: in practice all."""

MIN_STEP = 1e-12
"""Step at which the bisection over log q ends, far too small to change the exit of one in a million examples."""


def geometric_policy(confidences: ExitConfidences, budget: float, *, name: str | None = None) -> Policy:
    """Return the thresholds of the rule whose mean cost on this table is closest to the budget and not above it.

    At exit k the N q^k / (q + ... + q^E) most confident of the remaining examples exit. The number q is found by
    bisection. The cost of each q is measured on the table, so it includes ties and the rounding to whole examples.

    Args:
        confidences: from the calibration split; the test split is refused.
        budget: largest mean cost, in the table's unit (by default multiply-adds relative to the plain backbone).
        name: name of the policy; `geometric=0.6` by default.

    Example:
        >>> from elfnet import compute_confidences, evaluate_run, geometric_policy, open_run
        >>> confidences = compute_confidences(evaluate_run(open_run("runs/first"), "calibration"))
        >>> geometric_policy(confidences, budget=0.6).name
        'geometric=0.6'
    """
    require_calibration(confidences.table)
    require_budget(confidences.table, budget)
    # Examples by falling confidence at each exit: sorted once, filtered for each q.
    order_TN = np.argsort(-confidences.confidence_NE[:, :-1], axis=0, kind="stable").T
    name = f"geometric={budget:g}" if name is None else name
    low, high = -MAX_LOG_Q, MAX_LOG_Q
    full_cost, full = _cost_and_thresholds(confidences, order_TN, high)
    if full_cost <= budget + ROUNDING:
        return confidences.policy(name, full)
    # With all examples at the first exit, the cost is within every valid budget.
    best_cost, best = _cost_and_thresholds(confidences, order_TN, low)
    while high - low > MIN_STEP:
        middle = (low + high) / 2
        cost, thresholds = _cost_and_thresholds(confidences, order_TN, middle)
        if cost <= budget + ROUNDING:
            low = middle
            # Ties can make a larger q cheaper, so compare costs: the highest within the budget is the closest to it.
            if cost >= best_cost:
                best_cost, best = cost, thresholds
        else:
            high = middle
    return confidences.policy(name, best)


def _cost_and_thresholds(
    confidences: ExitConfidences, order_TN: NDArray[np.int64], log_q: float
) -> tuple[float, tuple[float, ...]]:
    """Return mean cost and thresholds for one q, found exit by exit among the remaining examples."""
    examples, exits = confidences.confidence_NE.shape
    weight_E = np.exp(log_q * np.arange(exits) - max(0.0, log_q * (exits - 1)))
    # Cumulative number of examples that should have exited after each exit. If ties let more examples exit at one
    # exit, fewer exit at the next, so the targets never exceed the number of examples.
    target_E = np.rint(examples * np.cumsum(weight_E) / weight_E.sum()).astype(np.int64)
    remains_N = np.ones(examples, dtype=np.bool_)
    exited, cost = 0, 0.0
    thresholds = []
    for k, order_N in enumerate(order_TN):
        remaining = order_N[remains_N[order_N]]
        threshold = _threshold(confidences.confidence_NE[remaining, k], int(target_E[k]) - exited)
        exiting = remaining[confidences.confidence_NE[remaining, k] > threshold]
        remains_N[exiting] = False
        exited += len(exiting)
        cost += len(exiting) * float(confidences.table.cost_E[k])
        thresholds.append(threshold)
    cost += (examples - exited) * float(confidences.table.cost_E[-1])
    return cost / examples, tuple(thresholds)


def _threshold(falling: NDArray[np.float64], wanted: int) -> float:
    """Return a threshold that lets the first `wanted` of these confidences exit, and all that equal the last of them.

    The threshold lies midway between that confidence and the next one below.
    """
    if wanted <= 0 or len(falling) == 0:
        return NEVER
    last = falling[wanted - 1]
    below = falling[falling < last]
    if len(below) == 0:
        return 0.0
    midway = below[0] + (last - below[0]) / 2
    return float(midway if midway < last else below[0])  # neighbouring floating-point numbers have no middle
