"""The candidates for risk control, in the order in which they are tested: from the safest to the boldest."""

# Shapes: N examples, T = E - 1 exits that have a threshold

from collections.abc import Callable, Sequence

from elfnet.errors import RequestError
from elfnet.evaluate.curve import spread_thresholds
from elfnet.evaluate.derived import derive
from elfnet.evaluate.exit_table import ExitTable
from elfnet.exits.policy import NEVER, Policy

POINTS = 100

Candidates = Sequence[Policy] | Callable[[ExitTable], Sequence[Policy]]
"""Policies from the safest to the boldest, or a function that fits them on the fitting part (which it is given)."""


def uniform_path(table: ExitTable, *, points: int = POINTS) -> tuple[Policy, ...]:
    """One threshold for all exits, at equal steps of the observed confidences, from the dearest to the cheapest.

    A lower threshold lets everybody leave at the same exit or earlier, so the order by threshold is the order by cost,
    here and on any other examples. Labels are not read. Full depth is left out: it needs no proof.
    """
    derived = derive(table)
    thresholds = spread_thresholds(derived.confidence_NE[:, :-1], points)
    falling = [float(s) for s in thresholds[::-1] if s < NEVER]
    return tuple(derived.uniform(f"s={s:.6g}", s) for s in falling)


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
