"""What searches need of an exit table, computed once: confidence, answer and whether it is right."""

# Shapes: N examples, E exits, C classes

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elfnet.errors import WorkError
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

CHUNK_BYTES = 8 * 2**20
"""How much of the logits is held as float64 at a time; small enough for the processor's cache to help."""


@dataclass(frozen=True, eq=False)
class ExitConfidences:
    """Confidence and answer of every example at every exit, for one choice of confidence scales.

    Attributes:
        table: where all this comes from.
        confidence_scale: one per exit.
        combine: whether an exit speaks for all exits up to it (the mean of their scaled logits) or for itself.
        measure: what the confidence is.
        confidence_NE: max softmax of the scaled logits, or what else the measure says, float64.
        prediction_NE: the class with the largest one.
        correct_NE: whether that is the label.
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
        """How the confidences were made of logits."""
        return ConfidenceSpec(self.confidence_scale, self.combine, self.measure, self.table.adjustment)

    def policy(self, name: str, thresholds: Sequence[float]) -> Policy:
        """A policy that decides by these confidences."""
        return Policy(name, tuple(thresholds), *self.reading)

    def uniform(self, name: str, threshold: float) -> Policy:
        """The same with one threshold for all exits but the last."""
        return self.policy(name, (float(threshold),) * (self.table.exits - 1))


def compute_confidences(
    table: ExitTable,
    confidence_scale: float | Sequence[float] | None = None,
    *,
    combine: bool = False,
    measure: Measure | None = None,
) -> ExitConfidences:
    """Read the logits once, a chunk of examples at a time.

    Args:
        table: an exit table; its adjustment, if it has one, is subtracted from the logits.
        confidence_scale: for all exits or one per exit; the table's own by default.
        combine: each exit speaks for all exits up to it.
        measure: what the confidence is; the table's own by default.
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
