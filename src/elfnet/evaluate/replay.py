"""What a policy would have done with every example of an exit table."""

# Shapes: N examples, E exits

from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from elfnet.errors import RequestError
from elfnet.evaluate.confidence import ExitConfidences, compute_confidences
from elfnet.evaluate.exit_table import ExitTable
from elfnet.exits.policy import Policy

T = TypeVar("T", bound=np.generic)


@dataclass(frozen=True, eq=False)
class Replay:
    """The exit every example took (from 0), with the answer, confidence and cost there."""

    policy: Policy
    exit_N: NDArray[np.int64]
    prediction_N: NDArray[np.int64]
    confidence_N: NDArray[np.float64]
    cost_N: NDArray[np.float64]


def replay(source: ExitTable | ExitConfidences, policy: Policy) -> Replay:
    """Apply the inference rule (eq. 5) to a table, or to what was derived from it with the policy's scales.

    Several policies with the same scales are quicker on one `ExitConfidences`, which saves the softmax.
    """
    table = source.table if isinstance(source, ExitConfidences) else source
    if policy.exits != table.exits:
        raise RequestError(
            f"policy {policy.name!r} is for {policy.exits} exits, the exit table has {table.exits}; calibrate again"
        )
    derived = source if isinstance(source, ExitConfidences) else confidences_for_policy(source, policy)
    if derived.reading != policy.reading:
        raise RequestError(
            f"policy {policy.name!r} makes confidences of logits by {policy.reading}, and these were made by "
            f"{derived.reading}; derive them again"
        )
    exit_N = policy.first_exit(derived.confidence_NE)
    return Replay(
        policy=policy,
        exit_N=exit_N,
        prediction_N=_at(derived.prediction_NE, exit_N),
        confidence_N=_at(derived.confidence_NE, exit_N),
        cost_N=table.cost_under(policy)[exit_N],
    )


def confidences_for_policy(table: ExitTable, policy: Policy) -> ExitConfidences:
    """What `compute_confidences` gives with a policy's way of making confidences."""
    table = replace(table, adjustment=policy.adjustment)
    return compute_confidences(table, policy.confidence_scale, combine=policy.combine, measure=policy.measure)


def _at(values_NE: NDArray[T], exit_N: NDArray[np.int64]) -> NDArray[T]:
    return values_NE[np.arange(len(exit_N)), exit_N]
