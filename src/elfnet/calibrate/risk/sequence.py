"""Testing candidates in a fixed order until one fails."""

# Shapes: P candidates in order, B of them at a time, N examples, M members of one group

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from elfnet.calibrate.risk.losses import LossForm
from elfnet.calibrate.risk.method import Method

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
