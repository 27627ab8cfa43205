"""Calibration of a run: fit its operating points on the calibration split, then measure them on the test split."""

from dataclasses import replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from elfnet.calibrate.class_mix import weighted_to
from elfnet.calibrate.classifier_choice import ClassifierChoice, choose_classifiers
from elfnet.calibrate.cross_fitting import CrossFitted, cross_fitted_table, without_promises
from elfnet.calibrate.family_request import FamilyRequest, RiskPoints, request_from_recipe
from elfnet.calibrate.fit_points import fit_family, fixed_family
from elfnet.calibrate.held_out import FOLDS, held_out_accuracies
from elfnet.calibrate.measured_cost import MeasuredCost
from elfnet.calibrate.point_family import MULTIPLY_ADDS, Family
from elfnet.data.ldam_drw_protocol import PROTOCOL
from elfnet.errors import RequestError
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.metrics import by_exit, measure
from elfnet.evaluate.policy_replay import ExitConfidences, compute_confidences, confidences_for_policy, replay
from elfnet.evaluate.run import evaluate_run
from elfnet.evaluate.trade_off import curve
from elfnet.exits.policy import ConfidenceSpec, Policy
from elfnet.models.staged import StagedNetwork
from elfnet.recipe.stages import total_epochs
from elfnet.run.checkpoint import is_finished, load_checkpoint
from elfnet.run.directory import RunDirectory
from elfnet.run.log import resume_command
from elfnet.run.results import PointResults, Results

ESTIMATED_POINTS = ("full", "accurate", "economic", "budget=0.5", "within-1")
"""Points whose accuracy on new images is estimated by cross-validation."""
EPOCH_CHOSEN = "the epoch was chosen on the calibration images, too, so their accuracies may be slightly too high"
"""What a family of a run with `train.patience` or `train.keep=best` says."""
MAX_CLASSES_IN_CONFUSION = 100
"""With more classes confusion matrices are not written: for 10,000 classes and dozens of points they take gigabytes."""


def calibrate_run(
    run: RunDirectory,
    request: FamilyRequest | None = None,
    *,
    cost: MeasuredCost | None = None,
    times: MeasuredCost | None = None,
    device: str = "cpu",
    network: StagedNetwork | None = None,
) -> Family:
    """Fit the operating points of a finished run on its calibration split and write policy.json.

    Args:
        run: the run directory.
        request: the points to fit; by default all rules, with the recipe's candidates for s.
        cost: measured cost of stages and heads, used instead of multiply-adds.
        times: measured cost that stands beside multiply-adds: for budgets in milliseconds, and for the report. It is
            written to times.json.
        device: device that computes the logits.
        network: the network, if the run was trained with a network object from the caller; see `evaluate_run`.

    Raises:
        RequestError: the run is not finished.

    Example:
        >>> from elfnet import calibrate_run, open_run
        >>> family = calibrate_run(open_run("runs/first"))
        >>> family.split
        'calibration'
    """
    with run.lock():
        _require_finished(run)
        recipe = run.recipe()
        if recipe.data.protocol == PROTOCOL and not recipe.data.fold and not recipe.data.cross_fitting:
            family = fixed_family(evaluate_run(run, "train", device=device, network=network), recipe, request)
        else:
            asked = request or request_from_recipe(recipe)
            fit = _estimated_family if recipe.data.cross_fitting and not recipe.data.fold else _fitted_family
            family = fit(run, asked, cost, times, device, network)
        if recipe.train.keep == "best" or recipe.train.patience:
            family = replace(family, notes=(*family.notes, EPOCH_CHOSEN))
        if times is not None:
            times.save(run.times_file)
        family.save(run.policy_file)
    return family


def _fitted_family(
    run: RunDirectory,
    request: FamilyRequest,
    cost: MeasuredCost | None,
    times: MeasuredCost | None,
    device: str,
    network: StagedNetwork | None,
) -> Family:
    """Fit the points of a run on its calibration split; for arguments see `calibrate_run`."""

    @cache
    def table_of(checkpoint: str) -> ExitTable:
        return evaluate_run(run, "calibration", checkpoint=checkpoint, device=device, network=network)

    choice = choose_classifiers(run, run.recipe(), request, table_of)
    return _of_choice(choice, _fitted(table_of(choice.checkpoint), choice.request, cost, times))


def _of_choice(choice: ClassifierChoice, family: Family) -> Family:
    """The family with the checkpoint of the chosen classifiers, and why they were chosen."""
    notes = (f"classifiers: {choice.why}",) if choice.why else ()
    return replace(family, checkpoint=choice.checkpoint, notes=(*notes, *family.notes))


def _fitted(
    table: ExitTable,
    request: FamilyRequest,
    cost: MeasuredCost | None,
    times: MeasuredCost | None,
    network_N: NDArray[np.int64] | None = None,
) -> Family:
    """Fit the points on a table, and estimate their accuracy; for `network_N` see `held_out_accuracies`."""
    if cost is None:
        family = fit_family(table, request, times=times)
    else:
        table = cost.applied_to(table)
        family = fit_family(table, request, cost_unit=cost.unit, times=times or cost)
    return with_held_out(family, table, request, network_N=network_N)


def _estimated_family(
    run: RunDirectory,
    request: FamilyRequest,
    cost: MeasuredCost | None,
    times: MeasuredCost | None,
    device: str,
    network: StagedNetwork | None,
) -> Family:
    """Fit the points of a run with cross-fitting; for arguments see `calibrate_run`."""
    request, promises = without_promises(request, classes=run.info().data.classes)

    @cache
    def joined_of(checkpoint: str) -> CrossFitted:
        return cross_fitted_table(run, checkpoint=checkpoint, device=device, network=network)

    choice = choose_classifiers(run, run.recipe(), request, lambda checkpoint: joined_of(checkpoint).table)
    joined = joined_of(choice.checkpoint)
    family = _of_choice(choice, _fitted(joined.table, choice.request, cost, times, joined.fold_N))
    note = _cross_fitting_note(joined.table, folds=len(np.unique(joined.fold_N)))
    return replace(family, notes=(note, *family.notes, *promises))


def _cross_fitting_note(table: ExitTable, folds: int) -> str:
    return (
        f"estimated by cross-fitting, no promise: points are chosen on {table.examples:,} training examples, each with "
        f"the answer of one of {folds} networks that had not seen it; the final network, trained on all, is usually "
        "more accurate"
    )


def with_held_out(
    family: Family, table: ExitTable, request: FamilyRequest, *, network_N: NDArray[np.int64] | None = None
) -> Family:
    """Add the accuracy to expect to the points that a user would choose, estimated by cross-validation.

    Args:
        family: fitted on `table` by `request`.
        table: exit table of the calibration split; too few examples for the folds leave the family as it is.
        request: the points of the family.
        network_N: with cross-fitting, the network of each example; see `held_out_accuracies`.
    """
    if table.examples < 2 * FOLDS:
        return family
    wanted = [name for name in ESTIMATED_POINTS if name in family.names()]
    small = replace(
        request,
        budgets=(0.5,) if "budget=0.5" in wanted else (),
        geometric_budgets=(),
        floors_points=(1.0,) if "within-1" in wanted else (),
        risk=RiskPoints(epsilons=()),
    )

    def fit(part: ExitTable) -> dict[str, Policy]:
        fitted = fit_family(part, small)
        return {name: fitted.point(name).policy for name in wanted}

    found = held_out_accuracies(weighted_to(table, request.mix).table, fit, network_N=network_N)
    points = tuple(replace(point, held_out=found.get(point.name)) for point in family.points)
    listed = ", ".join(
        f"{name} {100 * one.accuracy:.1f} % ({100 * one.low:.1f} to {100 * one.high:.1f})"
        for name, one in found.items()
        if family.point(name).same_as != "full"
    )
    note = f"accuracy to expect, with 95 % intervals, from images that did not choose the thresholds: {listed}"
    return replace(family, points=points, notes=(*family.notes, note))


def _require_finished(run: RunDirectory) -> None:
    """Refuse an unfinished run: after calibration it is measured on the test split, which is for final models only."""
    last, recipe = load_checkpoint(run.checkpoint("last")), run.recipe()
    if not is_finished(recipe, last):
        raise RequestError(
            f"the run in {run.root} has {last.epochs_done} of {total_epochs(recipe)} epochs; "
            f"before it can be calibrated, finish it with: {resume_command(run.root)}"
        )


def results_on(table: ExitTable, family: Family) -> Results:
    """Measure a family on a table: every operating point, every exit alone, and the curve of accuracy over cost."""
    family.require_checkpoint(table.checkpoint_sha256)
    if family.cost_unit != MULTIPLY_ADDS:
        table = replace(table, cost_E=np.array(family.cost), head_cost_E=np.array(family.head_cost))
    table = replace(table, adjustment=family.adjustment)
    confidences = compute_confidences(table, family.confidence_scale)
    # Points with the same confidence share it, so that the softmax of the table is computed once.
    by_confidence: dict[ConfidenceSpec, ExitConfidences] = {confidences.reading: confidences}
    with_confusion = table.classes <= MAX_CLASSES_IN_CONFUSION
    points = {}
    for point in family.points:
        key = point.policy.reading
        if key not in by_confidence:
            by_confidence[key] = confidences_for_policy(table, point.policy)
        metrics = measure(table, replay(by_confidence[key], point.policy), with_confusion=with_confusion)
        points[point.name] = PointResults(**dict(metrics), rule=point.rule, thresholds=point.policy.thresholds)
    return Results(
        split=table.split,
        n=table.examples,
        checkpoint_sha256=table.checkpoint_sha256,
        cost_unit=family.cost_unit,
        plain_multiply_adds=table.plain_multiply_adds,
        points=points,
        exits=by_exit(confidences),
        curve=curve(confidences),
    )


def measure_run(
    run: RunDirectory, family: Family, *, device: str = "cpu", network: StagedNetwork | None = None
) -> Results:
    """Measure a family on the test split of its run and write metrics.json.

    Example:
        >>> from elfnet import Family, measure_run, open_run
        >>> run = open_run("runs/first")
        >>> measure_run(run, Family.open(run.policy_file)).n
        60
    """
    with run.lock():
        table = evaluate_run(run, "test", checkpoint=family.checkpoint, device=device, network=network)
        results = results_on(table, family)
        run.save_results(results)
    return results
