"""Testing candidates in a fixed order until one fails."""

# Shapes: P candidates in order, B of them at a time, N examples, M members of one group
# Shapes: N examples, T = E - 1 exits that have a threshold

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from elfnet.calibrate.confidence import choose_confidence
from elfnet.calibrate.per_exit import family_for_budgets
from elfnet.calibrate.risk.bounds import Method
from elfnet.calibrate.risk.losses import LossForm
from elfnet.errors import RequestError
from elfnet.evaluate.confidence import compute_confidences
from elfnet.evaluate.curve import spread_thresholds
from elfnet.evaluate.exit_table import ExitTable
from elfnet.exits.policy import NEVER, Policy

PROCEDURES = ("fixed-sequence", "upper-bound")
CHUNK_CELLS = 2**20
"""Candidates x examples held as float64 at a time."""
CHUNK_CANDIDATES = 16
"""Not many more than needed are looked at after the first failure."""


class Certified(NamedTuple):
    """How many of the first candidates passed, and the p-value or bound of the last of them (None if none)."""

    passed: int
    statistic: float | None


def certified_prefix(
    loss_PN: NDArray[np.int8],
    members: Mapping[str, NDArray[np.bool_]],
    *,
    epsilon: float,
    delta: float,
    method: Method,
    form: LossForm,
    procedure: str,
) -> Certified:
    """The longest run of first candidates that all pass; every one after the first failure is left uncertified.

    `fixed-sequence` (learn-then-test) passes a candidate if the p-value of "risk above epsilon" is at most delta,
    `upper-bound` if its upper confidence bound at level delta is at most epsilon. Stopping at the first failure is what
    makes both hold without a correction for the number of candidates: to certify a candidate that breaks the promise,
    the *first* such candidate must have passed its own test, which happens with probability at most delta. This needs
    no monotone risk, only an order chosen without these examples.

    A candidate passes if it passes in every group: the group that is worst off decides (largest p-value or bound), so
    the promise holds in all groups at once and delta is not divided among them.

    Args:
        loss_PN: from `outcomes_of`, examples in random order.
        members: who belongs to each group, shape (N,).
        epsilon: the largest risk allowed, in units of the loss.
        delta: the level of each test.
        method: how means are bounded.
        form: what is bounded.
        procedure: one of `PROCEDURES`.
    """
    candidates, examples = loss_PN.shape
    chunk = max(1, min(CHUNK_CANDIDATES, CHUNK_CELLS // max(1, examples)))
    rows_of_group = [np.flatnonzero(member_N) for member_N in members.values()]
    last: float | None = None
    for start in range(0, candidates, chunk):
        loss_BN = loss_PN[start : start + chunk]
        statistic_B = np.full(len(loss_BN), -np.inf)
        for rows_M in rows_of_group:
            unit_BM = form.unit_losses(loss_BN[:, rows_M])
            if procedure == "fixed-sequence":
                of_group_B = method.p_values(unit_BM, form.to_unit(epsilon), delta)
            else:
                of_group_B = np.array([form.from_unit(unit) for unit in method.upper_bounds(unit_BM, delta).tolist()])
            statistic_B = np.maximum(statistic_B, of_group_B)
        passed_B = statistic_B <= (delta if procedure == "fixed-sequence" else epsilon)
        passed = int(np.argmin(passed_B)) if not passed_B.all() else len(passed_B)
        if passed:
            last = float(statistic_B[passed - 1])
        if passed < len(passed_B):
            return Certified(start + passed, last)
    return Certified(candidates, last)


CANDIDATE_POINTS = 100

Candidates = Sequence[Policy] | Callable[[ExitTable], Sequence[Policy]]
"""Policies from the safest to the boldest, or a function that fits them on the fitting part (which it is given)."""


def uniform_path(table: ExitTable, *, points: int = CANDIDATE_POINTS) -> tuple[Policy, ...]:
    """One threshold for all exits, at equal steps of the observed confidences, from the dearest to the cheapest.

    A lower threshold lets everybody leave at the same exit or earlier, so the order by threshold is the order by cost,
    here and on any other examples. Labels are not read. Full depth is left out: it needs no proof.
    """
    confidences = compute_confidences(table)
    thresholds = spread_thresholds(confidences.confidence_NE[:, :-1], points)
    falling = [float(s) for s in thresholds[::-1] if s < NEVER]
    return tuple(confidences.uniform(f"s={s:.6g}", s) for s in falling)


def ordered_candidates(fitting: ExitTable, candidates: Candidates | None) -> tuple[Policy, ...]:
    """The sequence to test; it may depend on the fitting part only."""
    if candidates is None:
        return uniform_path(fitting)
    chosen = tuple(candidates(fitting) if callable(candidates) else candidates)
    if not chosen:
        raise RequestError("risk control has no candidates; give at least one policy, or none for the uniform path")
    for policy in chosen:
        if policy.exits != fitting.exits:
            raise RequestError(
                f"candidate {policy.name!r} is for {policy.exits} exits, the exit table has {fitting.exits}; "
                f"give policies of this model"
            )
    return chosen


PATH_POINTS = 40


def per_exit_path(
    fitting: ExitTable, *, scales: str = "auto", combine: str = "auto", points: int = PATH_POINTS
) -> tuple[Policy, ...]:
    """Policies from the dearest to the cheapest; confidence, thresholds and order come from the fitting part alone.

    They are steeper than one threshold for all exits: the same saving costs less accuracy.
    """
    confidences = choose_confidence(fitting, scales=scales, combine=combine).compute_confidences(fitting)
    cheapest, dearest = float(fitting.cost_E[0]), min(1.0, float(fitting.cost_E[-1]))
    # To six digits for readable names; dict.fromkeys, since a network with one price for all exits has one budget.
    budgets = [max(cheapest, round(budget, 6)) for budget in np.linspace(dearest, cheapest, points).tolist()]
    return family_for_budgets(confidences, list(dict.fromkeys(budgets)))
