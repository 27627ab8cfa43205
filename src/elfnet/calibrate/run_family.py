"""Calibrating a run: the family from the calibration split, then its figures on the test split, once."""

from collections.abc import Sequence
from typing import Any

from elfnet import atomic
from elfnet.calibrate.family import Family
from elfnet.calibrate.line_search import line_search
from elfnet.checkpoint.format import load_checkpoint
from elfnet.checkpoint.run_directory import RunDirectory
from elfnet.errors import RequestError
from elfnet.evaluate.accuracy import measure
from elfnet.evaluate.by_exit import by_exit
from elfnet.evaluate.curve import curve
from elfnet.evaluate.derived import derive
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.replay import replay
from elfnet.evaluate.run_table import evaluate_run


def calibrate_run(
    run: RunDirectory,
    *,
    search: Sequence[str] | None = None,
    tolerance_points: float = 1.0,
    confidence_scale: float | None = None,
    device: str = "cpu",
) -> Family:
    """The paper's line search on the calibration split; writes policy.json.

    Args:
        search: candidates for s; the recipe's by default.
        confidence_scale: what logits are multiplied by before eq. 5; the recipe's by default.
    """
    _require_finished(run)
    table = evaluate_run(run, "calibration", device=device)
    family = line_search(
        table,
        search or run.recipe().exits.search,
        tolerance_points=tolerance_points,
        confidence_scale=confidence_scale,
    )
    family.save(run.policy_file)
    return family


def _require_finished(run: RunDirectory) -> None:
    """Calibrating leads to a look at the test split, which is for the last epoch only."""
    done, epochs = load_checkpoint(run.checkpoint("last")).epochs_done, run.recipe().train.epochs
    if done < epochs:
        raise RequestError(
            f"the run in {run.root} has {done} of {epochs} epochs; "
            f"finish it with 'elfnet train --resume --out {run.root}' before it is calibrated and measured on test"
        )


def results_on(table: ExitTable, family: Family) -> dict[str, Any]:
    """Every operating point of a family on a table, with the exits on their own and the whole curve."""
    family.require_checkpoint(table.checkpoint_sha256)
    derived = derive(table, family.confidence_scale)
    points = {
        point.name: {
            "thresholds": list(point.policy.thresholds),
            **measure(table, replay(derived, point.policy)).to_dict(),
        }
        for point in family.points
    }
    return {
        "split": table.split,
        "n": table.examples,
        "checkpoint_sha256": table.checkpoint_sha256,
        "cost_unit": "multiply-adds relative to the plain backbone, heads included",
        "plain_multiply_adds": table.plain_multiply_adds,
        "points": points,
        "exits": [quality.to_dict() for quality in by_exit(derived)],
        "curve": [point.to_dict() for point in curve(derived)],
    }


def measure_run(run: RunDirectory, family: Family, *, device: str = "cpu") -> dict[str, Any]:
    """The family on the test split; writes metrics.json."""
    results = results_on(evaluate_run(run, "test", device=device), family)
    atomic.write_json(run.metrics_file, results)
    return results
