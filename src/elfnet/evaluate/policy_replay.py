"""Apply a policy to every example of an exit table, as inference would.

Confidence, prediction and correctness of every example at every exit (`ExitConfidences`) are computed once per table;
any number of policies is replayed from them.
"""

# Shapes: N examples, B examples of a chunk, E exits, C classes

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from elfnet.errors import RequestError, WorkError
from elfnet.evaluate.exit_table import ExitTable
from elfnet.exits.policy import (
    ConfidenceSpec,
    Measure,
    Policy,
    add_evidence,
    certainty_and_prediction,
    confidence_and_prediction,
    scale_per_exit,
)

T = TypeVar("T", bound=np.generic)

CHUNK_BYTES = 8 * 2**20
"""Size of the float64 logits of one chunk of examples; a chunk fits into the processor's cache."""


@dataclass(frozen=True, eq=False)
class ExitConfidences:
    """Confidence and prediction of every example at every exit.

    Attributes:
        table: the exit table that they are computed from.
        confidence_scale: factor of the logits, one per exit.
        combine: whether an exit uses the mean of the scaled logits of all exits up to it, or only its own.
        measure: definition of the confidence.
        confidence_NE: maximum softmax probability of the scaled logits, or the other measure, float64.
        prediction_NE: the predicted class.
        correct_NE: whether the prediction is the label.
    """

    table: ExitTable
    confidence_scale: tuple[float, ...]
    combine: bool
    measure: Measure
    confidence_NE: NDArray[np.float64]
    prediction_NE: NDArray[np.int64]
    correct_NE: NDArray[np.bool_]

    @property
    def reading(self) -> ConfidenceSpec:
        """How the confidences were computed from the logits."""
        return ConfidenceSpec(self.confidence_scale, self.combine, self.measure, self.table.adjustment)

    def policy(self, name: str, thresholds: Sequence[float]) -> Policy:
        """A policy with one threshold for every exit except the last, which decides by these confidences."""
        return Policy(name, tuple(thresholds), *self.reading)

    def uniform(self, name: str, threshold: float) -> Policy:
        """A policy with the same threshold at every exit except the last."""
        return self.policy(name, (float(threshold),) * (self.table.exits - 1))


def compute_confidences(
    table: ExitTable,
    confidence_scale: float | Sequence[float] | None = None,
    *,
    combine: bool = False,
    measure: Measure | None = None,
) -> ExitConfidences:
    """Compute confidences and predictions from an exit table, one chunk of examples at a time.

    Args:
        table: an exit table; its adjustment, if it has one, is subtracted from the logits.
        confidence_scale: one for all exits, or one per exit; default: that of the table.
        combine: whether each exit uses the mean of the scaled logits of all exits up to it.
        measure: definition of the confidence; default: that of the table.

    Raises:
        WorkError: logits are not finite.

    Example:
        >>> from elfnet import compute_confidences, evaluate_run, open_run
        >>> confidences = compute_confidences(evaluate_run(open_run("runs/first"), "calibration"))
        >>> confidences.confidence_NE.shape  # 60 examples, 4 exits
        (60, 4)
    """
    measure = measure or table.confidence_measure
    read = confidence_and_prediction if measure == "probability" else certainty_and_prediction
    scale_E = scale_per_exit(table.confidence_scale if confidence_scale is None else confidence_scale, table.exits)
    confidence_NE = np.empty((table.examples, table.exits), dtype=np.float64)
    prediction_NE = np.empty((table.examples, table.exits), dtype=np.int64)
    chunk = max(1, CHUNK_BYTES // (8 * table.exits * table.classes))
    for start in range(0, table.examples, chunk):
        rows = slice(start, start + chunk)
        evidence_BC = None
        for k, scale in enumerate(scale_E):
            logits_BC = table.logits_at(k, rows)
            if combine:
                evidence_BC = add_evidence(evidence_BC, logits_BC, scale)
                confidence_NE[rows, k], prediction_NE[rows, k] = read(evidence_BC, 1.0 / (k + 1))
            else:
                confidence_NE[rows, k], prediction_NE[rows, k] = read(logits_BC, scale)
    bad_NE = np.isnan(confidence_NE)
    if bad_NE.any():
        example, exit_index = np.argwhere(bad_NE)[0]
        raise WorkError(
            f"the {table.split} exit table holds logits that are not finite (first: example {example}, exit "
            f"{exit_index + 1}); the model has diverged, train it again with a lower learning rate"
        )
    correct_NE = prediction_NE == table.labels_N[:, None]
    return ExitConfidences(table, scale_E, combine, measure, confidence_NE, prediction_NE, correct_NE)


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
        >>> from elfnet import Family, evaluate_run, open_run, replay
        >>> run = open_run("runs/first")
        >>> full = Family.open(run.policy_file).points[0].policy
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
