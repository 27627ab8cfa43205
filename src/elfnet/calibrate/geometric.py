"""MSDNet's rule as a baseline: the share of examples that leaves at exit k falls or grows like q^k."""

# Shapes: N examples, E exits, T = E - 1 thresholds

import numpy as np
from numpy.typing import NDArray

from elfnet.calibrate.family import ROUNDING, require_budget, require_calibration
from elfnet.evaluate.confidence import ExitConfidences
from elfnet.exits.policy import NEVER, Policy

LARGEST_LOG_Q = 50.0
"""At this log q all but e^-50 of the examples are meant for one end: with fewer than 10^20 of them, all."""

SMALLEST_STEP = 1e-12
"""Where the bisection over log q ends: far below what moves one of a million examples."""


def geometric_policy(derived: ExitConfidences, budget: float, *, name: str | None = None) -> Policy:
    """Thresholds of the rule whose mean cost on this table comes closest to the budget without exceeding it.

    Of N examples N q^k / (q + ... + q^E) are meant to leave at exit k, the most confident of those who are still
    there. One number q has to meet the budget; it is found by bisection over the mean cost that the thresholds really
    give, so that ties and rounding to whole examples are in it.

    Args:
        derived: from the calibration split; the test split is refused.
        budget: mean multiply-adds relative to the plain backbone.
        name: of the policy; `geometric=0.6` by default.
    """
    require_calibration(derived.table)
    require_budget(derived.table, budget)
    # Most confident first, at each exit; sorted once, filtered for each q.
    order_TN = np.argsort(-derived.confidence_NE[:, :-1], axis=0, kind="stable").T
    name = f"geometric={budget:g}" if name is None else name
    low, high = -LARGEST_LOG_Q, LARGEST_LOG_Q
    full_cost, full = _walk(derived, order_TN, high)
    if full_cost <= budget + ROUNDING:
        return derived.policy(name, full)
    best_cost, best = _walk(derived, order_TN, low)  # all leave at once: within every budget that is allowed
    while high - low > SMALLEST_STEP:
        middle = (low + high) / 2
        cost, thresholds = _walk(derived, order_TN, middle)
        if cost <= budget + ROUNDING:
            low = middle
            # Ties can make a larger q cheaper; the dearest within the budget is the closest to it.
            if cost >= best_cost:
                best_cost, best = cost, thresholds
        else:
            high = middle
    return derived.policy(name, best)


def _walk(derived: ExitConfidences, order_TN: NDArray[np.int64], log_q: float) -> tuple[float, tuple[float, ...]]:
    """Mean cost and thresholds for one q, exit by exit among those who are still there."""
    examples, exits = derived.confidence_NE.shape
    weight_E = np.exp(log_q * np.arange(exits) - max(0.0, log_q * (exits - 1)))
    # How many are to have left by the end of each exit. Whole numbers that add up: an exit where ties let more leave
    # than meant leaves fewer to the next, and none is ever asked for more examples than there are.
    target_E = np.rint(examples * np.cumsum(weight_E) / weight_E.sum()).astype(np.int64)
    stays_N = np.ones(examples, dtype=np.bool_)
    left, cost = 0, 0.0
    thresholds = []
    for k, order_N in enumerate(order_TN):
        remaining = order_N[stays_N[order_N]]
        threshold = _threshold(derived.confidence_NE[remaining, k], int(target_E[k]) - left)
        leaves = remaining[derived.confidence_NE[remaining, k] > threshold]
        stays_N[leaves] = False
        left += len(leaves)
        cost += len(leaves) * float(derived.table.cost_E[k])
        thresholds.append(threshold)
    cost += (examples - left) * float(derived.table.cost_E[-1])
    return cost / examples, tuple(thresholds)


def _threshold(falling: NDArray[np.float64], wanted: int) -> float:
    """Lets `wanted` of these leave, with all who are as confident as the last of them; midway to the next below."""
    if wanted <= 0 or len(falling) == 0:
        return NEVER
    last = falling[wanted - 1]
    below = falling[falling < last]
    if len(below) == 0:
        return 0.0
    midway = below[0] + (last - below[0]) / 2
    return float(midway if midway < last else below[0])  # neighbouring floating-point numbers have no middle
