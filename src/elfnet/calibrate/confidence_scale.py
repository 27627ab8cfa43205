"""The scale of the confidence, fitted: one number per exit that makes its probabilities as true as they can be.

It is the inverse of a temperature. Multiplying all logits of an exit by a positive number leaves every answer as it
is; only the confidence, and with it who leaves where, changes.
"""

# Shapes: N examples, E exits, C classes, B examples of one chunk

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from elfnet.calibrate.require_calibration import require_calibration
from elfnet.errors import WorkError
from elfnet.evaluate.derived import CHUNK_BYTES
from elfnet.evaluate.exit_table import ExitTable

SMALLEST_SCALE, LARGEST_SCALE = 1e-3, 1e3
"""An exit that is always right would want an infinite scale, one that is always wrong 0."""

MOST_LOGITS = 2**25
"""Of an exit that a fit reads: one number needs no more, and with thousands of classes more takes minutes."""

MOST_STEPS = 100
PRECISION = 1e-10


def fit_scales(table: ExitTable) -> tuple[float, ...]:
    """The scale of each exit that minimises the mean of -log softmax(scale * logits)[label] on this table.

    That is convex in the scale, so there is one minimum, or one end of `SMALLEST_SCALE`..`LARGEST_SCALE`. Where the
    scale makes no difference (all logits equal) the table's own is kept. Where an exit has more than `MOST_LOGITS`
    logits, every second (third, ...) example is read.

    Args:
        table: of the calibration split; a table of the test split is refused.
    """
    require_calibration(table)
    every = -(-table.examples * table.classes // MOST_LOGITS)
    if every > 1:
        table = replace(table, logits_NEC=table.logits_NEC[::every], labels_N=table.labels_N[::every])
    return tuple(_fit(table, k) for k in range(table.exits))


def _fit(table: ExitTable, exit_index: int) -> float:
    low, high = SMALLEST_SCALE, LARGEST_SCALE
    slope_low, _ = _slope_and_curvature(table, exit_index, low)
    slope_high, _ = _slope_and_curvature(table, exit_index, high)
    own = min(max(table.confidence_scale, low), high)
    if slope_low >= 0.0:
        return own if slope_high <= 0.0 else low
    if slope_high <= 0.0:
        return high
    scale = own
    for _ in range(MOST_STEPS):
        slope, curvature = _slope_and_curvature(table, exit_index, scale)
        low, high = (low, scale) if slope > 0.0 else (scale, high)
        step = scale - slope / curvature if curvature > 0.0 else math.inf
        # Newton where it stays between the two sides of the minimum; their geometric mean where it does not.
        following = step if low < step < high else math.sqrt(low * high)
        if abs(following - scale) <= PRECISION * scale:
            return following
        scale = following
    return scale


def _slope_and_curvature(table: ExitTable, exit_index: int, scale: float) -> tuple[float, float]:
    """First and second derivative of the mean loss by the scale.

    With p = softmax(scale * logits) they are the means of E_p[logit] - logit of the label and of Var_p[logit].
    """
    slope = curvature = 0.0
    chunk = max(1, CHUNK_BYTES // (8 * table.classes))
    for start in range(0, table.examples, chunk):
        rows = slice(start, start + chunk)
        logits_BC = table.logits_at(exit_index, rows).astype(np.float64)
        if not np.isfinite(logits_BC).all():
            raise WorkError(
                f"the {table.split} exit table holds logits that are not finite at exit {exit_index + 1}; "
                f"the model has diverged, train it again with a lower learning rate"
            )
        # Relative to the largest, so that nothing overflows; both derivatives stay the same.
        logits_BC -= logits_BC.max(axis=1, keepdims=True)
        label_B = np.take_along_axis(logits_BC, table.labels_N[rows, None], axis=1)[:, 0]
        probability_BC: NDArray[np.float64] = np.exp(scale * logits_BC)
        probability_BC /= probability_BC.sum(axis=1, keepdims=True)
        mean_B = np.einsum("bc,bc->b", probability_BC, logits_BC)
        square_B = np.einsum("bc,bc,bc->b", probability_BC, logits_BC, logits_BC)
        slope += float((mean_B - label_B).sum())
        curvature += float((square_B - mean_B**2).sum())
    return slope / table.examples, curvature / table.examples
