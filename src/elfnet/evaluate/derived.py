"""What searches need of an exit table, computed once: confidence, answer and whether it is right."""

# Shapes: N examples, E exits, C classes

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elfnet.errors import WorkError
from elfnet.evaluate.exit_table import ExitTable
from elfnet.exits.policy import add_evidence, confidence_and_prediction, scale_per_exit

CHUNK_BYTES = 8 * 2**20
"""How much of the logits is held as float64 at a time; small enough for the processor's cache to help."""


@dataclass(frozen=True, eq=False)
class Derived:
    """Confidence and answer of every example at every exit, for one choice of confidence scales.

    Attributes:
        table: where all this comes from.
        confidence_scale: one per exit.
        combine: whether an exit speaks for all exits up to it (the mean of their scaled logits) or for itself.
        confidence_NE: max softmax of the scaled logits, float64.
        prediction_NE: the class with the largest one.
        correct_NE: whether that is the label.
    """

    table: ExitTable
    confidence_scale: tuple[float, ...]
    combine: bool
    confidence_NE: NDArray[np.float64]
    prediction_NE: NDArray[np.int64]
    correct_NE: NDArray[np.bool_]


def derive(
    table: ExitTable, confidence_scale: float | Sequence[float] | None = None, *, combine: bool = False
) -> Derived:
    """Read the logits once, a chunk of examples at a time.

    Args:
        table: an exit table.
        confidence_scale: for all exits or one per exit; the table's own by default.
        combine: each exit speaks for all exits up to it.
    """
    scale_E = scale_per_exit(table.confidence_scale if confidence_scale is None else confidence_scale, table.exits)
    confidence_NE = np.empty((table.examples, table.exits), dtype=np.float64)
    prediction_NE = np.empty((table.examples, table.exits), dtype=np.int64)
    chunk = max(1, CHUNK_BYTES // (8 * table.exits * table.classes))
    for start in range(0, table.examples, chunk):
        rows = slice(start, start + chunk)
        logits_BEC = np.asarray(table.logits_NEC[rows])
        evidence_BC = None
        for k, scale in enumerate(scale_E):
            if combine:
                evidence_BC = add_evidence(evidence_BC, logits_BEC[:, k], scale)
                confidence_NE[rows, k], prediction_NE[rows, k] = confidence_and_prediction(evidence_BC, 1.0 / (k + 1))
            else:
                confidence_NE[rows, k], prediction_NE[rows, k] = confidence_and_prediction(logits_BEC[:, k], scale)
    bad_NE = np.isnan(confidence_NE)
    if bad_NE.any():
        example, exit_index = np.argwhere(bad_NE)[0]
        raise WorkError(
            f"the {table.split} exit table holds logits that are not finite (first: example {example}, exit "
            f"{exit_index + 1}); the model has diverged, train it again with a lower learning rate"
        )
    return Derived(table, scale_E, combine, confidence_NE, prediction_NE, prediction_NE == table.labels_N[:, None])
