"""What confidence is read from: the model's own scale or fitted ones, each exit alone or all exits so far together.

Neither is better for every model, so both are tried on the calibration split, by cross-validation, and the simpler way
is kept unless the other is better by more than its standard error.
"""

# Shapes: N examples, P budgets

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elfnet.calibrate.confidence_scale import fit_scales
from elfnet.calibrate.risk.split_table import split_table
from elfnet.calibrate.threshold_search import ThresholdSearch, WithinBudget
from elfnet.errors import RequestError
from elfnet.evaluate.derived import Derived, derive
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.replay import replay
from elfnet.exits.policy import scale_per_exit
from elfnet.registry import unknown_name

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

    def derive(self, table: ExitTable) -> Derived:
        return derive(table, self.scale, combine=self.combine)


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
        search = ThresholdSearch(derive(fitting, scale, combine=option.combine), cells=GRID_CELLS)
        judged = derive(judging, scale, combine=option.combine)
        right_PN = []
        for budget in _budgets(fitting):
            policy = judged.policy("candidate", search.best(WithinBudget(budget), refine=False))
            right_PN.append(replay(judged, policy).prediction_N == judging.labels_N)
        parts.append(np.mean(right_PN, axis=0))
    return np.concatenate(parts)


def _budgets(table: ExitTable) -> NDArray[np.float64]:
    """From the cheapest exit to full depth, both ends left out: there is little to decide there."""
    return np.linspace(float(table.cost_E[0]), float(table.cost_E[-1]), BUDGETS + 2)[1:-1]
