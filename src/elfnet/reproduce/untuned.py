"""What the calibration split gives away: results without any choice on it, and how many labels a choice used.

Calibration images are labelled images that a method without choices does not have. A class with 50 training images has
200 of them on CIFAR-10-LT. So a table shows, beside each result that was chosen there, the one with untuned settings:
tau = 1, unadjusted logits, and the largest candidate for s, which is the most careful to exit.
"""

# Shapes: N test examples, E exits, C classes

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from elfnet.calibrate.line_search import named_thresholds
from elfnet.calibrate.point_family import Family
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.metrics import measure
from elfnet.evaluate.policy_replay import compute_confidences, replay
from elfnet.evaluate.run import evaluate_run
from elfnet.exits.policy import NEVER
from elfnet.losses.logit_adjusted import log_prior
from elfnet.methods.refit.post_hoc import UNTUNED_TAU, at_untuned_tau
from elfnet.recipe.renamed import translate_stored
from elfnet.reproduce.paper_table import FULL_DEPTH, UNTUNED
from elfnet.run.checkpoint import load_checkpoint
from elfnet.run.directory import RunDirectory
from elfnet.run.info import TauInfo

TAU_METHODS = ("tau-norm", "logit-adjustment")
FIELDS = ("accuracy", "accuracy_by_group", "mean_cost", "worst_cost", "exit_share")


def untuned_point(run: RunDirectory) -> dict[str, Any] | None:
    """Measure a run on the test split with untuned settings.

    Args:
        run: a run that was calibrated and measured on the test split.

    Returns:
        The settings in words (`setting`) and the metrics; None if nothing was chosen on the calibration split.
    """
    recipe, table, family = run.recipe(), evaluate_run(run, "test"), Family.open(run.policy_file)
    settings = []
    if family.checkpoint != "last":
        settings.append("classifiers of the second stage")
    if recipe.refit.method in TAU_METHODS:
        table = replace(table, logits_NEC=_logits_at_untuned_tau(run, recipe.refit.method, table))
        settings.append(f"τ = {UNTUNED_TAU:g}")
    if family.adjustment is not None:
        settings.append("logits not adjusted")
    name, threshold = FULL_DEPTH, NEVER
    if table.exits > 1:
        name, threshold = _most_careful(recipe.exits.search, table.classes)
        settings.append(name.replace("=", " = "))
    if not settings:
        return None
    confidences = compute_confidences(table)
    metrics = measure(table, replay(confidences, confidences.uniform(name, threshold)), with_confusion=False).to_json()
    return {"setting": ", ".join(settings), **{field: metrics[field] for field in FIELDS}}


def stored_untuned(record: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the untuned point of a record; None if it has none.

    Records of earlier versions do not have it. For a network with exits it is among their points; the result at tau = 1
    cannot be known without the run.
    """
    if "untuned" in record:
        untuned: dict[str, Any] | None = record["untuned"]
        return untuned
    if len(record["exits"]) == 1 or record["recipe"]["exits"].get("logit_adjustment", "off") != "off":
        return None
    name, _ = _most_careful(record["recipe"]["exits"]["search"], len(record["data"]["class_counts"]))
    point = record["points"].get(name)
    return None if point is None else {"setting": name.replace("=", " = "), **{field: point[field] for field in FIELDS}}


def labels_used(record: Mapping[str, Any], point: str) -> int:
    """Return how many labelled images outside training the choices behind a point of a record used."""
    held_out: int = record["data"].get("calibration", 0)
    recipe = translate_stored(record["recipe"])
    adjusted = recipe["refit"]["method"] in TAU_METHODS or recipe["exits"].get("logit_adjustment", "off") != "off"
    thresholds = point != FULL_DEPTH and len(record["exits"]) > 1
    return held_out if point != UNTUNED and (adjusted or thresholds) else 0


def _most_careful(search: Any, classes: int) -> tuple[str, float]:
    """The name and the value of the largest candidate for s."""
    named = named_thresholds(search, classes)
    return max(named.items(), key=lambda item: item[1])


def _logits_at_untuned_tau(run: RunDirectory, method: str, table: ExitTable) -> NDArray[np.float32]:
    weights, refit = load_checkpoint(run.checkpoint("last")).weights, run.info().refit
    assert refit is not None, "a run of this method records what it was fitted to"
    taus = [choice.tau for choice in refit.exits if isinstance(choice, TauInfo)]
    log_prior_C = log_prior(table.class_counts_C.tolist())
    logits_E = [
        at_untuned_tau(
            method,
            torch.from_numpy(np.array(table.logits_NEC[:, k])),
            tau=taus[k],
            weight_CF=weights[f"heads.{k}.classifier.weight"],
            log_prior_C=log_prior_C,
        )
        for k in range(table.exits)
    ]
    return torch.stack(logits_E, dim=1).float().numpy()
