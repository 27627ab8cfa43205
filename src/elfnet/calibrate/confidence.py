"""What confidence is read from: the model's own scale or fitted ones, each exit alone or all exits so far together.

Neither is better for every model, so both are tried on the calibration split, by cross-validation, and the simpler way
is kept unless the other is better by more than its standard error.
"""

# Shapes: N examples, P budgets
# Shapes: N examples, E exits, C classes, B examples of one chunk

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from elfnet.calibrate.calibration_table import require_calibration, split_table
from elfnet.calibrate.threshold_search import ThresholdSearch, WithinBudget
from elfnet.errors import RequestError, WorkError
from elfnet.evaluate.confidence import CHUNK_BYTES, ExitConfidences, compute_confidences
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.replay import replay
from elfnet.exits.policy import scale_per_exit
from elfnet.registry import unknown_name

SMALLEST_SCALE, LARGEST_SCALE = 1e-3, 1e3
"""An exit that is always right would want an infinite scale, one that is always wrong 0."""

MAX_LOGITS = 2**25
"""Of an exit that a fit reads: one number needs no more, and with thousands of classes more takes minutes."""

MAX_STEPS = 100
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
    every = -(-table.examples * table.classes // MAX_LOGITS)
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
    for _ in range(MAX_STEPS):
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


SCALES = ("auto", "own", "fitted")
COMBINE = ("auto", "on", "off")
BUDGETS = 5
GRID_CELLS = 2**15
FEWEST_EXAMPLES = 50
"""With fewer examples than this the comparison is left alone: the simplest way is taken."""


@dataclass(frozen=True)
class Confidence:
    """A choice, fitted.

    Attributes:
        scale: one per exit.
        combine: whether exits are combined.
        why: the choice in words, with what was measured.
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
    """The confidence to fit thresholds for.

    Args:
        table: of the calibration split; a table of the test split is refused.
        scales: `own` (the recipe's scale for all exits), `fitted` (see `fit_scales`), or `auto`: what is better.
        combine: `on`, `off`, or `auto`: what is better. With experts, `on` is refused and `auto` is `off`.
        seed: of the two halves of the cross-validation.
    """
    for kind, name, choices in (("scales", scales, SCALES), ("combine", combine, COMBINE)):
        if name not in choices:
            raise unknown_name(kind, name, list(choices))
    if table.experts > 1:
        if combine == "on":
            raise RequestError(
                f"combine=on averages all exits so far, and the exits of model.experts={table.experts} average their "
                "experts already; use combine=off or auto"
            )
        combine = "off"
    options = [
        _Option(fitted, combined)
        for fitted in {"own": (False,), "fitted": (True,), "auto": (False, True)}[scales]
        for combined in {"off": (False,), "on": (True,), "auto": (False, True)}[combine]
        # Unscaled logits of different exits are not comparable; with `auto` they are not worth a try.
        if combine == "on" or fitted or not combined
    ]
    best, why = options[0], f"{options[0].words}: as asked"
    if len(options) > 1:
        best, why = _better(table, options, seed)
    return Confidence(_scales(table, fitted=best.fitted), best.combine, why)


def _scales(table: ExitTable, *, fitted: bool) -> tuple[float, ...]:
    return fit_scales(table) if fitted else scale_per_exit(table.confidence_scale, table.exits)


def _better(table: ExitTable, options: list[_Option], seed: int) -> tuple[_Option, str]:
    if table.exits == 1 or table.examples < FEWEST_EXAMPLES:
        return options[0], f"{options[0].words}: nothing to compare, {table.exits} exits and {table.examples} examples"
    try:
        halves = split_table(table, 0.5, seed, strata_N=table.labels_N)
    except RequestError:
        return options[0], f"{options[0].words}: too few examples to compare"
    # Fitted once for all options that share them: with thousands of classes this is most of the work.
    scales = {fitted: [_scales(half, fitted=fitted) for half in halves] for fitted in {o.fitted for o in options}}
    right = {option: _cross_validated(option, halves, scales[option.fitted]) for option in options}
    best = options[0]
    for option in options[1:]:
        gain_N = right[option] - right[best]
        if gain_N.mean() > gain_N.std() / np.sqrt(len(gain_N)):
            best = option
    measured = "; ".join(f"{option.words} {100 * right_N.mean():.2f} %" for option, right_N in right.items())
    return best, f"{best.words} (cross-validated accuracy over {BUDGETS} budgets: {measured})"


def _cross_validated(
    option: _Option, halves: tuple[ExitTable, ExitTable], scales: list[tuple[float, ...]]
) -> NDArray[np.float64]:
    """How often each example is right, over the budgets, at thresholds fitted on the other half; shape (N,)."""
    parts = []
    for fitting, judging, scale in zip(halves, halves[::-1], scales, strict=True):
        search = ThresholdSearch(compute_confidences(fitting, scale, combine=option.combine), cells=GRID_CELLS)
        judged = compute_confidences(judging, scale, combine=option.combine)
        right_PN = []
        for budget in _budgets(fitting):
            policy = judged.policy("candidate", search.best(WithinBudget(budget), refine=False))
            right_PN.append(replay(judged, policy).prediction_N == judging.labels_N)
        parts.append(np.mean(right_PN, axis=0))
    return np.concatenate(parts)


def _budgets(table: ExitTable) -> NDArray[np.float64]:
    """From the cheapest exit to full depth, both ends left out: there is little to decide there."""
    return np.linspace(float(table.cost_E[0]), float(table.cost_E[-1]), BUDGETS + 2)[1:-1]
