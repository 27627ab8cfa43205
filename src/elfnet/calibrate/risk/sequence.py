"""Fixed-sequence testing: sequences of candidate policies, and tests in this order until the first candidate fails."""

# Shapes: P candidates in order, B candidates of one chunk, N examples, M members of one group, E exits

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elfnet.calibrate.confidence import choose_confidence
from elfnet.calibrate.per_exit_search import family_for_budgets
from elfnet.calibrate.risk.bounds import Method
from elfnet.calibrate.risk.losses import LossForm
from elfnet.errors import RequestError
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.policy_replay import compute_confidences
from elfnet.evaluate.trade_off import spread_thresholds
from elfnet.exits.policy import NEVER, Policy

PROCEDURES = ("fixed-sequence", "upper-bound")
CHUNK_CELLS = 2**20
"""Largest number of candidates x examples in float64 arrays."""
CHUNK_CANDIDATES = 16
"""Largest number of candidates tested at once, so that few are computed after the first failure."""
CANDIDATE_POINTS = 100
"""Default number of candidates with one threshold for all exits."""
PATH_POINTS = 40
"""Default number of candidates with one threshold per exit."""

Candidates = Sequence[Policy] | Callable[[ExitTable], Sequence[Policy]]
"""Policies from the safest to the boldest, or a function that fits them on the fitting part of the table."""


class Certified(NamedTuple):
    """Number of candidates that passed before the first failure, and the p-value or bound of the last that passed."""

    passed: int
    statistic: float | None


def certified_prefix(
    loss_PN: NDArray[Any],
    members: Mapping[str, NDArray[np.bool_]],
    *,
    epsilon: float,
    delta: float,
    method: Method,
    form: LossForm,
    procedure: str,
    weight_N: NDArray[np.float64] | None = None,
) -> Certified:
    """Test the candidates in order and certify those before the first failure.

    With `fixed-sequence` (learn-then-test) a candidate passes if the p-value of "risk above epsilon" is at most delta,
    with `upper-bound` if its upper confidence bound at level delta is at most epsilon. Both need no correction for the
    number of candidates, because they stop at the first failure: a candidate whose risk is above epsilon is only
    certified if the *first* such candidate passes its test, which has a probability of at most delta. The risk need not
    be monotone, but the order must be chosen without these examples.

    A candidate passes if it passes in every group. The worst group decides (largest p-value or bound), so the guarantee
    holds in all groups at once, and delta is not divided among them.

    Args:
        loss_PN: losses from `outcomes_of`, examples in random order.
        members: mask of the examples of each group, shape (N,).
        epsilon: the largest risk allowed, in units of the loss.
        delta: the level of each test.
        method: how means are bounded.
        form: the form of the loss that is bounded.
        procedure: one of `PROCEDURES`.
        weight_N: weights of the examples, with which the classes have the target mix; None for equal ones. A weighted
            loss of an example is at most the largest weight, so losses and epsilon are divided by it.
    """
    candidates, examples = loss_PN.shape
    chunk = max(1, min(CHUNK_CANDIDATES, CHUNK_CELLS // max(1, examples)))
    rows_of_group = [np.flatnonzero(member_N) for member_N in members.values()]
    shares = [relative_weights(weight_N, rows_M) for rows_M in rows_of_group]
    last: float | None = None
    for start in range(0, candidates, chunk):
        loss_BN = loss_PN[start : start + chunk]
        statistic_B = np.full(len(loss_BN), -np.inf)
        for rows_M, (share_M, largest) in zip(rows_of_group, shares, strict=True):
            unit_BM = form.unit_losses(loss_BN[:, rows_M] * share_M)
            if procedure == "fixed-sequence":
                of_group_B = method.p_values(unit_BM, form.to_unit(epsilon / largest), delta)
            else:
                bounds = method.upper_bounds(unit_BM, delta).tolist()
                of_group_B = np.array([largest * form.from_unit(unit) for unit in bounds])
            statistic_B = np.maximum(statistic_B, of_group_B)
        passed_B = statistic_B <= (delta if procedure == "fixed-sequence" else epsilon)
        passed = int(np.argmin(passed_B)) if not passed_B.all() else len(passed_B)
        if passed:
            last = float(statistic_B[passed - 1])
        if passed < len(passed_B):
            return Certified(start + passed, last)
    return Certified(candidates, last)


def relative_weights(
    weight_N: NDArray[np.float64] | None, rows_M: NDArray[np.int64]
) -> tuple[NDArray[np.float64] | float, float]:
    """Weights of some examples divided by the largest, and the largest if their mean is 1."""
    if weight_N is None or not len(rows_M):
        return 1.0, 1.0
    weight_M = weight_N[rows_M]
    return weight_M / weight_M.max(), float(weight_M.max() / weight_M.mean())


def uniform_path(table: ExitTable, *, points: int = CANDIDATE_POINTS) -> tuple[Policy, ...]:
    """Return policies with one threshold for all exits, from the most expensive to the cheapest.

    The thresholds are quantiles of the observed confidences. With a lower threshold every example exits at the same
    exit or earlier, so the order by threshold is the order by cost on any examples. Labels are not used. Full depth is
    omitted, because it has no risk.
    """
    confidences = compute_confidences(table)
    thresholds = spread_thresholds(confidences.confidence_NE[:, :-1], points)
    falling = [float(s) for s in thresholds[::-1] if s < NEVER]
    return tuple(confidences.uniform(f"s={s:.6g}", s) for s in falling)


def ordered_candidates(fitting: ExitTable, candidates: Candidates | None) -> tuple[Policy, ...]:
    """Return the sequence of candidates to test. It may depend on the fitting part of the table only."""
    if candidates is None:
        return uniform_path(fitting)
    chosen = tuple(candidates(fitting) if callable(candidates) else candidates)
    if not chosen:
        raise RequestError("risk control has no candidates; give at least one policy, or candidates=None for defaults")
    for policy in chosen:
        if policy.exits != fitting.exits:
            raise RequestError(
                f"candidate {policy.name!r} has {policy.exits} exits, but the exit table has {fitting.exits}; "
                f"give policies of this model"
            )
    return chosen


def per_exit_path(
    fitting: ExitTable, *, scales: str = "auto", combine: str = "auto", points: int = PATH_POINTS
) -> tuple[Policy, ...]:
    """Return policies with one threshold per exit, from the most expensive to the cheapest.

    Confidence, thresholds and order depend on the fitting part of the table only. These policies usually lose less
    accuracy for the same saving than one threshold for all exits.
    """
    confidences = choose_confidence(fitting, scales=scales, combine=combine).compute_confidences(fitting)
    cheapest, full = float(fitting.cost_E[0]), min(1.0, float(fitting.cost_E[-1]))
    # Six digits for readable names. dict.fromkeys removes duplicates: if all exits cost the same, there is one budget.
    budgets = [max(cheapest, round(budget, 6)) for budget in np.linspace(full, cheapest, points).tolist()]
    return family_for_budgets(confidences, list(dict.fromkeys(budgets)))
