"""Apply a policy to every example of an exit table, as inference would."""

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
    """The exit (0-based) that every example takes under a policy, with prediction, confidence and cost there."""

    policy: Policy
    exit_N: NDArray[np.int64]
    prediction_N: NDArray[np.int64]
    confidence_N: NDArray[np.float64]
    cost_N: NDArray[np.float64]


def replay(source: ExitTable | ExitConfidences, policy: Policy) -> Replay:
    """Apply the inference rule (eq. 5) of a policy to all examples.

    Args:
        source: an exit table, or confidences that were computed from one with the settings of the policy. Several
            policies with equal settings are faster on one `ExitConfidences`, which saves the softmax.

    Raises:
        RequestError: the policy does not fit the table or the confidences.

    Example:
        >>> from elfnet import calibrate_run, evaluate_run, open_run, replay
        >>> run = open_run("runs/first")
        >>> full = calibrate_run(run).points[0].policy
        >>> replay(evaluate_run(run, "test"), full).exit_N.min()  # at full depth all examples take the last exit
        np.int64(3)
    """
    table = source.table if isinstance(source, ExitConfidences) else source
    if policy.exits != table.exits:
        raise RequestError(
            f"policy {policy.name!r} is for {policy.exits} exits, the exit table has {table.exits}; calibrate again"
        )
    confidences = source if isinstance(source, ExitConfidences) else confidences_for_policy(source, policy)
    if confidences.reading != policy.reading:
        raise RequestError(
            f"policy {policy.name!r} needs confidences computed with {policy.reading}, and these were computed with "
            f"{confidences.reading}; compute them again"
        )
    exit_N = policy.first_exit(confidences.confidence_NE)
    return Replay(
        policy=policy,
        exit_N=exit_N,
        prediction_N=_at_exit(confidences.prediction_NE, exit_N),
        confidence_N=_at_exit(confidences.confidence_NE, exit_N),
        cost_N=table.cost_under(policy)[exit_N],
    )


def confidences_for_policy(table: ExitTable, policy: Policy) -> ExitConfidences:
    """Compute the confidences of a table with the settings of a policy."""
    table = replace(table, adjustment=policy.adjustment)
    return compute_confidences(table, policy.confidence_scale, combine=policy.combine, measure=policy.measure)


def _at_exit(values_NE: NDArray[T], exit_N: NDArray[np.int64]) -> NDArray[T]:
    """The value of each example at its exit, shape (N,)."""
    return values_NE[np.arange(len(exit_N)), exit_N]
