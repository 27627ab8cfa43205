"""Fitting the family of operating points of a model on the calibration split."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from elfnet.calibrate.calibration_table import ROUNDING, require_calibration
from elfnet.calibrate.class_mix import exits_that_beat_the_last, weighted_to
from elfnet.calibrate.confidence import choose_confidence
from elfnet.calibrate.family_request import FamilyRequest, request_from_recipe
from elfnet.calibrate.held_out import better_beyond_noise, losses_to_choose_by
from elfnet.calibrate.line_search import fixed_points, line_search, measured_point
from elfnet.calibrate.measured_cost import MeasuredCost, TimeBudget
from elfnet.calibrate.operating_point import OperatingPoint
from elfnet.calibrate.per_exit_search import (
    family_for_budgets,
    geometric_policy,
    thresholds_for_budget,
    thresholds_for_floor,
)
from elfnet.calibrate.point_family import MULTIPLY_ADDS, Family
from elfnet.calibrate.risk.bounds import TooFewExamplesError
from elfnet.calibrate.risk.control import control_risks
from elfnet.calibrate.risk.sequence import per_exit_path
from elfnet.errors import RequestError
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.policy_replay import ExitConfidences, compute_confidences, confidences_for_policy
from elfnet.exits.policy import NEVER, Policy
from elfnet.recipe.schema import Recipe


def fit_family(
    table: ExitTable,
    request: FamilyRequest,
    *,
    cost_unit: str = MULTIPLY_ADDS,
    times: MeasuredCost | None = None,
) -> Family:
    """Fit the requested operating points on the calibration split.

    The points are, in this order: `full`, `accurate` (see `FamilyRequest`) and `economic` (see `line_search`);
    `budget=B`, with one threshold per exit; `within-X` and `worst-group-within-X`; `risk=E`; then the baselines, `s=S`
    of the line search and `geometric=B`.

    Args:
        table: exit table of the calibration split; a table of the test split is refused.
        request: the points to fit.
        cost_unit: unit of the costs in the table.
        times: time of the stages on this machine, for budgets in milliseconds.

    Example:
        >>> from elfnet import FamilyRequest, evaluate_run, fit_family, open_run
        >>> table = evaluate_run(open_run("runs/first"), "calibration")
        >>> family = fit_family(table, FamilyRequest(search=[0.9], budgets=(0.5,)))
        >>> family.point("budget=0.5").policy.name
        'budget=0.5'
    """
    require_calibration(table)
    choice = request.adjust.choose(table)
    mixed = weighted_to(table, request.mix)
    plain, table = mixed.table, replace(mixed.table, adjustment=choice.adjustment)
    notes = [*([f"logits: {choice.why}"] if choice.why else []), *mixed.notes]
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
    plain_exits = compute_confidences(table, by_line_search.confidence_scale)
    notes += [
        f"exit {number} alone is {100 * gain:.1f} points more accurate than the last exit on the calibration split"
        for number, gain in exits_that_beat_the_last(plain_exits.correct_NE, table.example_weights())
    ]
    if request.accurate == "beyond-noise":
        full, _, economic = named
        best = better_beyond_noise(table, confidence.compute_confidences, full, searched)
        named = (full, best.renamed("accurate"), economic)
    risk_points, risk_notes = _risk_points(plain, request)
    points = [
        *named,
        *_budget_points(confidences, request, times),
        *_floor_points(table, confidence.compute_confidences, request),
        *risk_points,
        *searched,
        *_geometric_points(plain_exits, request),
    ]
    return Family.of(
        table,
        points,
        confidence_scale=by_line_search.confidence_scale,
        cost_unit=cost_unit,
        notes=[*notes, f"confidence: {confidence.why}", *risk_notes],
    )


def fixed_family(table: ExitTable, recipe: Recipe, request: FamilyRequest | None = None) -> Family:
    """Return the family of a run without a calibration split: thresholds that are fixed in advance.

    `accurate` and `economic` are the largest candidate for s, the one that is most careful to exit. Nothing is chosen.

    Args:
        table: exit table of the training split. The expected figures are measured on it, so accuracies are too high.
        request: only its candidates for s and its scale are used.

    Raises:
        RequestError: the request asks for points that have to be fitted.
    """
    default = request_from_recipe(recipe)
    request = request or default
    if replace(request, search=default.search, confidence_scale=None) != default:
        raise RequestError(
            f"data.protocol={recipe.data.protocol} has no calibration split to fit operating points on; give "
            "candidates for s alone (--search)"
        )
    family = fixed_points(table, request.search, confidence_scale=request.confidence_scale)
    full, *fixed = family.points
    careful = max(fixed, key=lambda point: point.policy.thresholds) if table.exits > 1 else full
    note = f"thresholds: fixed in advance ({careful.name}), none is chosen; expected accuracies are of training images"
    points = [full, careful.renamed("accurate"), careful.renamed("economic"), *(fixed if table.exits > 1 else [])]
    return Family.of(table, points, confidence_scale=family.confidence_scale, notes=[note])


def spaced_budgets(table: ExitTable, step: float) -> tuple[float, ...]:
    """Return the multiples of `step` from the cost of the cheapest exit to that of full depth without early heads.

    Full depth is the plain backbone, or with experts all experts.
    """
    deepest = float(table.cost_E[-1])
    early_heads = 0.0 if table.head_cost_E is None else float(table.head_cost_E[:-1].sum())
    full = min(1.0, deepest) if table.experts == 1 else deepest - early_heads
    first = int(np.ceil(float(table.cost_E[0]) / step - ROUNDING))
    last = int(np.floor(full / step + ROUNDING))
    return tuple(round(number * step, 6) for number in range(first, last + 1))


def _budget_points(
    confidences: ExitConfidences, request: FamilyRequest, times: MeasuredCost | None
) -> list[OperatingPoint]:
    given = request.budgets or ()
    costs = tuple(budget for budget in given if not isinstance(budget, TimeBudget))
    timed = tuple(budget for budget in given if isinstance(budget, TimeBudget))
    if request.budgets is None or (timed and not costs):
        costs = spaced_budgets(confidences.table, 0.05)
    policies = [*family_for_budgets(confidences, costs), *(_within_time(confidences, one, times) for one in timed)]
    return [measured_point(confidences, policy, rule="budget") for policy in policies]


def _within_time(confidences: ExitConfidences, budget: TimeBudget, times: MeasuredCost | None) -> Policy:
    """Return the most accurate thresholds whose mean time is within the budget; the cost of the point stays its own."""
    if times is None:
        raise RequestError(f"budget {budget} needs measured times; give times=, or a mean cost such as 0.6")
    timed = replace(confidences, table=times.applied_to(confidences.table))
    seconds = budget.milliseconds / 1e3
    fastest = 1e3 * times.plain * float(timed.table.cost_E[0])
    if budget.milliseconds < fastest:
        raise RequestError(
            f"budget {budget} is below the time to the first exit, {fastest:.3g}ms on this machine ({times.how}); give "
            "a longer time"
        )
    return thresholds_for_budget(timed, seconds / times.plain, name=f"budget={budget}")


def _geometric_points(confidences: ExitConfidences, request: FamilyRequest) -> list[OperatingPoint]:
    given = request.geometric_budgets
    budgets = spaced_budgets(confidences.table, 0.1) if given is None else given
    return [measured_point(confidences, geometric_policy(confidences, budget), rule="geometric") for budget in budgets]


def _floor_points(
    table: ExitTable, compute: Callable[[ExitTable], ExitConfidences], request: FamilyRequest
) -> list[OperatingPoint]:
    for lost in request.floors_points:
        if not 0.0 <= lost < 100.0:
            raise RequestError(f"an accuracy loss of {lost:g} percentage points is invalid; give 0 or more, below 100")
    groups = {"within": None, "worst-group-within": "worst"}
    limits = {
        f"{word}-{lost:g}": (lost / 100, group) for lost in request.floors_points for word, group in groups.items()
    }
    if not limits:
        return []
    chosen_by = losses_to_choose_by(table, compute, list(limits.values()))
    confidences = compute(table)
    full = measured_point(confidences, confidences.uniform("full", NEVER), rule="floor").expected
    reached = {None: full.accuracy, "worst": min(one for one in full.accuracy_by_group.values() if one is not None)}
    points = []
    for name, (lost, group) in limits.items():
        loss = chosen_by[lost, group]
        if loss is None:
            policy = confidences.uniform(name, NEVER)
        else:
            policy = thresholds_for_floor(confidences, max(0.0, reached[group] - loss), group=group, name=name)
        points.append(measured_point(confidences, policy, rule="floor"))
    return points


def _risk_points(table: ExitTable, request: FamilyRequest) -> tuple[list[OperatingPoint], list[str]]:
    """Return the points with a guarantee, and notes about those that were omitted.

    Logit adjustment and confidence of these points are chosen on the fitting part of the table only.
    """
    risk, points, notes = request.risk, [], []

    def candidates(fitting: ExitTable) -> tuple[Policy, ...]:
        adjusted = replace(fitting, adjustment=request.adjust.choose(fitting).adjustment)
        return per_exit_path(adjusted, scales=request.scales, combine=request.combine)

    for epsilon in risk.epsilons:
        if risk.epsilons.count(epsilon) > 1:
            raise RequestError(f"epsilon={epsilon:g} is given twice; give each once")
    # All epsilons share one split and one path of candidates. An epsilon with too few examples is dropped, and the
    # others are tried again.
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
            notes.append(f"risk={error.epsilon:g} is omitted: {error}")
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
