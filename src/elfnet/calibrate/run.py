"""Calibration of a run: fit its operating points on the calibration split, then measure them on the test split."""

from dataclasses import replace

import numpy as np

from elfnet.calibrate.family import MULTIPLY_ADDS, Family
from elfnet.calibrate.fit import FamilyRequest, fit_family, fixed_family, request_from_recipe
from elfnet.calibrate.measured_cost import MeasuredCost
from elfnet.data.ldam_drw import PROTOCOL
from elfnet.errors import RequestError
from elfnet.evaluate.confidence import ExitConfidences, compute_confidences
from elfnet.evaluate.curve import curve
from elfnet.evaluate.exit_quality import by_exit
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.metrics import measure
from elfnet.evaluate.replay import confidences_for_policy, replay
from elfnet.evaluate.run import evaluate_run
from elfnet.exits.policy import ConfidenceSpec
from elfnet.models.staged import StagedNetwork
from elfnet.recipe.stages import total_epochs
from elfnet.run.checkpoint import load_checkpoint
from elfnet.run.directory import RunDirectory
from elfnet.run.results import PointResults, Results

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
        if recipe.data.protocol == PROTOCOL:
            family = fixed_family(evaluate_run(run, "train", device=device, network=network), recipe, request)
            family.save(run.policy_file)
            return family
        table = evaluate_run(run, "calibration", device=device, network=network)
        request = request or request_from_recipe(recipe)
        if cost is None:
            family = fit_family(table, request, times=times)
        else:
            family = fit_family(cost.applied_to(table), request, cost_unit=cost.unit, times=times or cost)
        if times is not None:
            times.save(run.times_file)
        family.save(run.policy_file)
    return family


def _require_finished(run: RunDirectory) -> None:
    """Refuse an unfinished run: after calibration it is measured on the test split, which is for final models only."""
    done, epochs = load_checkpoint(run.checkpoint("last")).epochs_done, total_epochs(run.recipe())
    if done < epochs:
        raise RequestError(
            f"the run in {run.root} has {done} of {epochs} epochs; "
            f"finish it with 'elfnet train --resume --out {run.root}', then calibrate it"
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
        >>> from elfnet import calibrate_run, measure_run, open_run
        >>> run = open_run("runs/first")
        >>> measure_run(run, calibrate_run(run)).n
        60
    """
    with run.lock():
        results = results_on(evaluate_run(run, "test", device=device, network=network), family)
        run.save_results(results)
    return results
