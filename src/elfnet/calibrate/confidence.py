"""The confidence of the exits: fitting one scale per exit, and choosing how confidence is computed.

There are two choices: the scale of the model or fitted scales, and each exit alone or combined with all exits before
it. No choice is best for every model, so they are compared by cross-validation on the calibration split. The simpler
choice is kept unless the other is better by more than the standard error of the difference.
"""

# Shapes: N examples, E exits, C classes, B examples of one chunk, P budgets

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from elfnet.calibrate.calibration_table import require_calibration, split_table
from elfnet.calibrate.threshold_search import ThresholdSearch, WithinBudget
from elfnet.errors import RequestError, WorkError
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.policy_replay import CHUNK_BYTES, ExitConfidences, compute_confidences, replay
from elfnet.exits.policy import scale_per_exit
from elfnet.registry import unknown_name

SMALLEST_SCALE, LARGEST_SCALE = 1e-3, 1e3
"""Range of fitted scales. The best scale of an exit that is always right is infinite, of one that is always wrong 0."""

MAX_LOGITS = 2**25
"""Largest number of logits per exit that a fit reads. More take minutes and do not change the result noticeably."""

MIN_EXAMPLES = 50
"""With fewer examples the choices are not compared, and the simplest one is used."""

SCALES = ("auto", "own", "fitted")
COMBINE = ("auto", "on", "off")

_MAX_STEPS = 100
_PRECISION = 1e-10
_BUDGETS = 5
_GRID_CELLS = 2**15


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


@dataclass(frozen=True)
class Confidence:
    """How confidence is computed, with fitted scales.

    Attributes:
        scale: one scale per exit.
        combine: whether each exit is combined with those before it.
        why: the choice and the measurements behind it, in words.
    """

    scale: tuple[float, ...]
    combine: bool
    why: str

    def compute_confidences(self, table: ExitTable) -> ExitConfidences:
        return compute_confidences(table, self.scale, combine=self.combine)


@dataclass(frozen=True)
class _Option:
    fitted: bool
    combine: bool

    @property
    def words(self) -> str:
        scale = "fitted scales" if self.fitted else "the model's own scale"
        return f"{scale}, {'exits combined' if self.combine else 'each exit alone'}"


def choose_confidence(table: ExitTable, *, scales: str = "auto", combine: str = "auto", seed: int = 0) -> Confidence:
    """Choose how confidence is computed, before thresholds are fitted.

    Args:
        table: exit table of the calibration split; a table of the test split is refused.
        scales: `own` (the recipe's scale for all exits), `fitted` (see `fit_scales`), or `auto` (the better one).
        combine: `on`, `off`, or `auto` (the better one). With experts, `on` is refused and `auto` means `off`.
        seed: seed of the split into two halves for the cross-validation.
    """
    for kind, name, choices in (("scales", scales, SCALES), ("combine", combine, COMBINE)):
        if name not in choices:
            raise unknown_name(kind, name, list(choices))
    if table.experts > 1:
        if combine == "on":
            raise RequestError(
                f"combine=on averages all exits so far, but the exits of model.experts={table.experts} already average "
                "their experts; use combine=off or auto"
            )
        combine = "off"
    options = [
        _Option(fitted, combined)
        for fitted in {"own": (False,), "fitted": (True,), "auto": (False, True)}[scales]
        for combined in {"off": (False,), "on": (True,), "auto": (False, True)}[combine]
        # Logits of different exits are not comparable without fitted scales, so `auto` does not combine them.
        if combine == "on" or fitted or not combined
    ]
    best, why = options[0], f"{options[0].words}: as requested"
    if len(options) > 1:
        best, why = _best_option(table, options, seed)
    return Confidence(_scales(table, fitted=best.fitted), best.combine, why)


def _scales(table: ExitTable, *, fitted: bool) -> tuple[float, ...]:
    return fit_scales(table) if fitted else scale_per_exit(table.confidence_scale, table.exits)


def _best_option(table: ExitTable, options: list[_Option], seed: int) -> tuple[_Option, str]:
    """Compare the options by cross-validation; the first one wins unless another is clearly better."""
    if table.exits == 1 or table.examples < MIN_EXAMPLES:
        return options[0], f"{options[0].words}: nothing to compare, {table.exits} exits and {table.examples} examples"
    try:
        halves = split_table(table, 0.5, seed, strata_N=table.labels_N)
    except RequestError:
        return options[0], f"{options[0].words}: too few examples to compare"
    # Fitted once for all options that share the scales: with thousands of classes this takes most of the time.
    scales = {fitted: [_scales(half, fitted=fitted) for half in halves] for fitted in {o.fitted for o in options}}
    right = {option: _cross_validated(option, halves, scales[option.fitted]) for option in options}
    best = options[0]
    for option in options[1:]:
        gain_N = right[option] - right[best]
        if gain_N.mean() > gain_N.std() / np.sqrt(len(gain_N)):
            best = option
    measured = "; ".join(f"{option.words} {100 * right_N.mean():.2f} %" for option, right_N in right.items())
    return best, f"{best.words} (cross-validated accuracy over {_BUDGETS} budgets: {measured})"


def _cross_validated(
    option: _Option, halves: tuple[ExitTable, ExitTable], scales: list[tuple[float, ...]]
) -> NDArray[np.float64]:
    """Share of the budgets at which each example is correct, shape (N,). Thresholds are fitted on the other half."""
    parts = []
    for fitting, held_out, scale in zip(halves, halves[::-1], scales, strict=True):
        search = ThresholdSearch(compute_confidences(fitting, scale, combine=option.combine), cells=_GRID_CELLS)
        confidences = compute_confidences(held_out, scale, combine=option.combine)
        right_PN = []
        for budget in _budgets(fitting):
            policy = confidences.policy("candidate", search.best(WithinBudget(budget), refine=False))
            right_PN.append(replay(confidences, policy).prediction_N == held_out.labels_N)
        parts.append(np.mean(right_PN, axis=0))
    return np.concatenate(parts)


def _budgets(table: ExitTable) -> NDArray[np.float64]:
    """Equally spaced budgets between the cheapest exit and full depth, without these two ends."""
    return np.linspace(float(table.cost_E[0]), float(table.cost_E[-1]), _BUDGETS + 2)[1:-1]
