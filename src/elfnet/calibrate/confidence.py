"""Choosing how the confidence of the exits is computed.

There are two choices: the scale of the model or fitted scales, and each exit alone or combined with all exits before
it. No choice is best for every model, so they are compared by cross-validation on the calibration split. The simpler
choice is kept unless the other is better by more than the standard error of the difference.
"""

# Shapes: N examples, P budgets

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elfnet.calibrate.calibration_table import split_table
from elfnet.calibrate.confidence_scale import fit_scales
from elfnet.calibrate.threshold_search import ThresholdSearch, WithinBudget
from elfnet.errors import RequestError
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.policy_replay import ExitConfidences, compute_confidences, replay
from elfnet.exits.policy import scale_per_exit
from elfnet.registry import unknown_name

MIN_EXAMPLES = 50
"""With fewer examples the choices are not compared, and the simplest one is used."""

SCALES = ("auto", "own", "fitted")
COMBINE = ("auto", "on", "off")

_BUDGETS = 5
_GRID_CELLS = 2**15


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
    if table.exits == 1:
        return options[0], f"{options[0].words}: with one exit there is nothing to compare"
    if table.examples < MIN_EXAMPLES:
        return options[0], (
            f"{options[0].words}; {table.examples} examples are too few to compare other ways, which takes "
            f"{MIN_EXAMPLES}"
        )
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
