"""MSDNet's geometric rule, a baseline: the share of examples that exit at exit k is proportional to q^k."""

# Shapes: N examples, E exits, T = E - 1 thresholds

import numpy as np
from numpy.typing import NDArray

from elfnet.calibrate.calibration_table import ROUNDING, require_budget, require_calibration
from elfnet.evaluate.confidence import ExitConfidences
from elfnet.exits.policy import NEVER, Policy

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
