"""All operating points of a model, from the exit table of its calibration split."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from elfnet.calibrate.adjustment_choice import AdjustmentChoice, choose_adjustment
from elfnet.calibrate.calibration_table import ROUNDING, require_calibration
from elfnet.calibrate.confidence import choose_confidence
from elfnet.calibrate.family import MULTIPLY_ADDS, Family
from elfnet.calibrate.geometric import geometric_policy
from elfnet.calibrate.line_search import line_search, measured_point
from elfnet.calibrate.operating_point import OperatingPoint
from elfnet.calibrate.per_exit import family_for_budgets, thresholds_for_floor
from elfnet.calibrate.risk.control import control_risks
from elfnet.calibrate.risk.sample_size import TooFewExamplesError
from elfnet.calibrate.risk.sequence import per_exit_path
from elfnet.errors import RequestError
from elfnet.evaluate.confidence import ExitConfidences, compute_confidences
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.replay import confidences_for_policy
from elfnet.exits.policy import Policy
from elfnet.recipe.schema import Recipe
from elfnet.recipe.stages import final_recipe, loss_scale

DEFAULT_EPSILONS = (0.01, 0.02, 0.05)


@dataclass(frozen=True, kw_only=True)
class RiskPoints:
    """Points with a promise; see `control_risks` for the fields.

    Attributes:
        epsilons: the largest accuracy lost against full depth, one point each.
        delta: the chance that a promise is broken.
        simultaneous: whether delta holds for all promises together or for each.
        required: whether too few examples for a promise are an error; else the point is left out and a note says so.
    """

    epsilons: tuple[float, ...] = DEFAULT_EPSILONS
    delta: float = 0.05
    simultaneous: bool = False
    method: str = "betting"
    procedure: str = "fixed-sequence"
    loss: str = "accuracy"
    groups: str = "none"
    seed: int = 0
    fraction: float = 0.5
    required: bool = False


@dataclass(frozen=True, kw_only=True)
class Adjust:
    """Whether and how logits may be adjusted for the training prior; see `choose_adjustment` for the fields."""

    adjust: str = "off"
    taus: tuple[float, ...] = ()
    loss_scale: float = 1.0

    def choose(self, table: ExitTable) -> AdjustmentChoice:
        """What a table of the calibration split, or of a part of it, speaks for."""
        return choose_adjustment(table, adjust=self.adjust, taus=self.taus, loss_scale=self.loss_scale)


@dataclass(frozen=True, kw_only=True)
class FamilyRequest:
    """The points of a family.

    Attributes:
        search: candidates for s, the one threshold of the paper's line search.
        tolerance_points: how much accuracy `economic` may give up, in percentage points.
        confidence_scale: of the line search, for all exits; the table's own by default.
        budgets: mean costs to find the best thresholds for; None: steps of 0.05 from the cheapest exit to full depth.
        geometric_budgets: the same for MSDNet's rule; None: steps of 0.1.
        floors_points: points `within-X` that lose at most X percentage points against full depth, overall, and
            `worst-group-within-X` for the frequency group that is worst off.
        scales: `own`, `fitted` or `auto`; see `choose_confidence`.
        combine: `on`, `off` or `auto`.
        adjust: whether the logits of all points are adjusted.
        risk: points with a promise.
    """

    search: Sequence[str | float]
    tolerance_points: float = 1.0
    confidence_scale: float | None = None
    budgets: tuple[float, ...] | None = None
    geometric_budgets: tuple[float, ...] | None = None
    floors_points: tuple[float, ...] = (0.5, 1.0)
    scales: str = "auto"
    combine: str = "auto"
    adjust: Adjust = field(default_factory=Adjust)
    risk: RiskPoints = field(default_factory=RiskPoints)


def request_of(recipe: Recipe) -> FamilyRequest:
    """The points that a run's recipe asks for: all rules, with its candidates for s and for tau."""
    return FamilyRequest(search=recipe.exits.search, adjust=adjust_of(recipe))


def adjust_of(recipe: Recipe, adjust: str | None = None) -> Adjust:
    """How the recipe lets logits be adjusted; `adjust` replaces its choice of whether."""
    scale = loss_scale(final_recipe(recipe))
    return Adjust(adjust=adjust or recipe.exits.logit_adjustment, taus=recipe.refit.taus, loss_scale=scale)


def fit_family(table: ExitTable, request: FamilyRequest, *, cost_unit: str = MULTIPLY_ADDS) -> Family:
    """Fit every point that is asked for.

    In this order: `full`, `accurate` and `economic` (see `line_search`); `budget=B`, thresholds per exit; `within-X`
    and `worst-group-within-X`; `risk=E`; then the baselines, `s=S` of the line search and `geometric=B`.

    Args:
        table: of the calibration split; a table of the test split is refused.
        request: what is asked for.
        cost_unit: what the table's costs are counted in.
    """
    require_calibration(table)
    choice = request.adjust.choose(table)
    plain, table = table, replace(table, adjustment=choice.adjustment)
    notes = [f"logits: {choice.why}"] if choice.why else []
    by_line_search = line_search(
        table,
        request.search,
        tolerance_points=request.tolerance_points,
        confidence_scale=request.confidence_scale,
    )
    named, searched = by_line_search.points[:3], by_line_search.points[3:]
    if table.exits == 1:
        return replace(by_line_search, cost_unit=cost_unit, notes=(*notes, "one exit: there is nothing to decide"))
    confidence = choose_confidence(table, scales=request.scales, combine=request.combine)
    confidences = confidence.compute_confidences(table)
    risk_points, risk_notes = _risk_points(plain, request)
    points = [
        *named,
        *_budget_points(confidences, request),
        *_floor_points(confidences, request),
        *risk_points,
        *searched,
        *_geometric_points(compute_confidences(table, by_line_search.confidence_scale), request),
    ]
    return Family.of(
        table,
        points,
        confidence_scale=by_line_search.confidence_scale,
        cost_unit=cost_unit,
        notes=[*notes, f"confidence: {confidence.why}", *risk_notes],
    )


def spaced_budgets(table: ExitTable, step: float) -> tuple[float, ...]:
    """Multiples of `step` from the cheapest exit to full depth without early heads.

    That is the plain backbone, and with experts all of them.
    """
    deepest = float(table.cost_E[-1])
    early_heads = 0.0 if table.head_cost_E is None else float(table.head_cost_E[:-1].sum())
    full = min(1.0, deepest) if table.experts == 1 else deepest - early_heads
    first = int(np.ceil(float(table.cost_E[0]) / step - ROUNDING))
    last = int(np.floor(full / step + ROUNDING))
    return tuple(round(number * step, 6) for number in range(first, last + 1))


def _budget_points(confidences: ExitConfidences, request: FamilyRequest) -> list[OperatingPoint]:
    budgets = spaced_budgets(confidences.table, 0.05) if request.budgets is None else request.budgets
    return [measured_point(confidences, policy, rule="budget") for policy in family_for_budgets(confidences, budgets)]


def _geometric_points(confidences: ExitConfidences, request: FamilyRequest) -> list[OperatingPoint]:
    asked = request.geometric_budgets
    budgets = spaced_budgets(confidences.table, 0.1) if asked is None else asked
    return [measured_point(confidences, geometric_policy(confidences, budget), rule="geometric") for budget in budgets]


def _floor_points(confidences: ExitConfidences, request: FamilyRequest) -> list[OperatingPoint]:
    table = confidences.table
    right_N = confidences.correct_NE[:, -1]
    group_N = table.group_of_class[table.labels_N]
    overall = float(right_N.mean())
    worst = min(float(right_N[group_N == group].mean()) for group in np.unique(group_N))
    points = []
    for lost in request.floors_points:
        if not 0.0 <= lost < 100.0:
            raise RequestError(f"a point that loses {lost:g} percentage points makes no sense; give 0 to 100")
        for name, group, reached in (
            (f"within-{lost:g}", None, overall),
            (f"worst-group-within-{lost:g}", "worst", worst),
        ):
            policy = thresholds_for_floor(confidences, max(0.0, reached - lost / 100), group=group, name=name)
            points.append(measured_point(confidences, policy, rule="floor"))
    return points


def _risk_points(table: ExitTable, request: FamilyRequest) -> tuple[list[OperatingPoint], list[str]]:
    """Points with a promise. What they read of the logits, too, is chosen on the fitting part alone."""
    risk, points, notes = request.risk, [], []

    def candidates(fitting: ExitTable) -> tuple[Policy, ...]:
        adjusted = replace(fitting, adjustment=request.adjust.choose(fitting).adjustment)
        return per_exit_path(adjusted, scales=request.scales, combine=request.combine)

    for epsilon in risk.epsilons:
        if risk.epsilons.count(epsilon) > 1:
            raise RequestError(f"epsilon={epsilon:g} is given twice; give each once")
    # One split and one path for all of them: `control_risks` is given them together, unless one asks for too much.
    feasible = list(risk.epsilons)
    while feasible:
        try:
            controlled = control_risks(
                table,
                epsilons=feasible,
                delta=risk.delta,
                simultaneous=risk.simultaneous,
                candidates=candidates,
                method=risk.method,
                procedure=risk.procedure,
                loss=risk.loss,
                groups=risk.groups,
                seed=risk.seed,
                fraction=risk.fraction,
            )
        except TooFewExamplesError as error:
            if risk.required:
                raise
            feasible.remove(error.epsilon)
            notes.append(f"risk={error.epsilon:g} is left out: {error}")
            continue
        for result in controlled:
            policy = result.policy_named(f"risk={result.epsilon:g}")
            points.append(
                measured_point(
                    confidences_for_policy(table, policy), policy, rule="risk control", promise=result.promise()
                )
            )
        break
    return points, notes
