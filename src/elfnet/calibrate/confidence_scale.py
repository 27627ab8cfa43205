"""The confidence of an exit as a probability: the scale that makes it one, and the accuracy to expect from it."""

# Shapes: N examples, E exits, C classes, B examples of one chunk

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from elfnet.calibrate.calibration_table import require_calibration
from elfnet.errors import WorkError
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.policy_replay import CHUNK_BYTES, ExitConfidences, compute_confidences
from elfnet.exits.policy import add_evidence

SMALLEST_SCALE, LARGEST_SCALE = 1e-3, 1e3
"""Range of fitted scales. The best scale of an exit that is always right is infinite, of one that is always wrong 0."""

MAX_LOGITS = 2**25
"""Largest number of logits per exit that a fit reads. More take minutes and do not change the result noticeably."""

PRIOR_EXAMPLES = 500
"""Number of examples at which counted and expected correct predictions have equal weight in `expected_correct`."""

_MAX_STEPS = 100
_PRECISION = 1e-10


def fit_scales(table: ExitTable) -> tuple[float, ...]:
    """Fit the scale of each exit: the minimum of the mean of -log softmax(scale * logits)[label] on this table.

    The mean is convex in the scale, so the minimum is unique or lies at an end of the range
    `SMALLEST_SCALE`..`LARGEST_SCALE`. If the scale has no effect (all logits are equal), the scale of the table is
    kept. If an exit has more than `MAX_LOGITS` logits, only every second (third, ...) example is read.

    Args:
        table: exit table of the calibration split; a table of the test split is refused.

    Returns:
        One scale per exit.

    Example:
        >>> from elfnet import evaluate_run, fit_scales, open_run
        >>> len(fit_scales(evaluate_run(open_run("runs/first"), "calibration")))  # one scale per exit
        4
    """
    require_calibration(table)
    every = -(-table.examples * table.classes // MAX_LOGITS)
    if every > 1:
        table = replace(table, logits_NEC=table.logits_NEC[::every], labels_N=table.labels_N[::every])
    return tuple(_fit_scale(table, k) for k in range(table.exits))


def _fit_scale(table: ExitTable, exit_index: int) -> float:
    low, high = SMALLEST_SCALE, LARGEST_SCALE
    slope_low, _ = _slope_and_curvature(table, exit_index, low)
    slope_high, _ = _slope_and_curvature(table, exit_index, high)
    own = min(max(table.confidence_scale, low), high)
    if slope_low >= 0.0:
        return own if slope_high <= 0.0 else low
    if slope_high <= 0.0:
        return high
    scale = own
    for _ in range(_MAX_STEPS):
        slope, curvature = _slope_and_curvature(table, exit_index, scale)
        low, high = (low, scale) if slope > 0.0 else (scale, high)
        step = scale - slope / curvature if curvature > 0.0 else math.inf
        # A Newton step if it stays in the bracket of the minimum, else the geometric mean of the bracket.
        following = step if low < step < high else math.sqrt(low * high)
        if abs(following - scale) <= _PRECISION * scale:
            return following
        scale = following
    return scale


def _slope_and_curvature(table: ExitTable, exit_index: int, scale: float) -> tuple[float, float]:
    """Return the first and second derivative of the mean loss with respect to the scale.

    With p = softmax(scale * logits), they are the means of E_p[logit] - logit[label] and of Var_p[logit].
    """
    slope = curvature = 0.0
    chunk = max(1, CHUNK_BYTES // (8 * table.classes))
    for start in range(0, table.examples, chunk):
        rows = slice(start, start + chunk)
        logits_BC = table.logits_at(exit_index, rows).astype(np.float64)
        if not np.isfinite(logits_BC).all():
            raise WorkError(
                f"the {table.split} exit table holds logits that are not finite at exit {exit_index + 1}; "
                f"the training has diverged, train again with a lower learning rate"
            )
        # Subtracting the maximum avoids overflow and does not change the derivatives.
        logits_BC -= logits_BC.max(axis=1, keepdims=True)
        label_B = np.take_along_axis(logits_BC, table.labels_N[rows, None], axis=1)[:, 0]
        probability_BC: NDArray[np.float64] = np.exp(scale * logits_BC)
        probability_BC /= probability_BC.sum(axis=1, keepdims=True)
        mean_B = np.einsum("bc,bc->b", probability_BC, logits_BC)
        square_B = np.einsum("bc,bc,bc->b", probability_BC, logits_BC, logits_BC)
        slope += float((mean_B - label_B).sum())
        curvature += float((square_B - mean_B**2).sum())
    return slope / table.examples, curvature / table.examples


def expected_correct(confidences: ExitConfidences) -> NDArray[np.float64]:
    """Estimate how often the prediction of each exit is correct for each example, shape (N, E).

    A count of correct predictions is a noisy measure of accuracy if a table has few examples, or weighs a few of a rare
    class heavily: the thresholds with the highest count are then often lucky. A confidence with a fitted scale varies
    much less, but it can be biased. The estimate is the mean of both. The weight of the counts is n / (n +
    `PRIOR_EXAMPLES`), where n is the effective number of examples, (sum of weights)^2 / sum of squared weights. A
    constant is added to all values, such that the mean of the last exit is its accuracy on the table.

    Args:
        confidences: from the calibration split.
    """
    table = _combined(confidences) if confidences.combine else confidences.table
    probability_NE = compute_confidences(table, fit_scales(table), measure="probability").confidence_NE
    weight_N = confidences.table.example_weights()
    effective = float(weight_N.sum() ** 2 / (weight_N**2).sum())
    counted = effective / (effective + PRIOR_EXAMPLES)
    correct_NE = counted * confidences.correct_NE + (1 - counted) * probability_NE
    level = np.average(confidences.correct_NE[:, -1] - correct_NE[:, -1], weights=weight_N)
    return np.asarray(correct_NE + level, dtype=np.float64)


def _combined(confidences: ExitConfidences) -> ExitTable:
    """The table with the logits that exits decide by if each is combined with those before it."""
    table = confidences.table
    logits_NEC = np.empty(table.logits_NEC.shape, dtype=np.float32)
    evidence_NC = None
    for k, scale in enumerate(confidences.confidence_scale):
        evidence_NC = add_evidence(evidence_NC, table.logits_at(k, slice(None)), scale)
        logits_NEC[:, k] = evidence_NC / (k + 1)
    return replace(table, logits_NEC=logits_NEC, adjustment=None, confidence_scale=1.0)
