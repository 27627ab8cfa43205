"""What is kept of a run: how it was made, what it measured, how training went. Nothing of where it lay."""

from collections.abc import Mapping, Sequence
from typing import Any

from elfnet.models.build import network_of
from elfnet.models.flops import count_cost
from elfnet.recipe.schema import ModelRecipe
from elfnet.reproduce.cell import Cell
from elfnet.reproduce.right_answers import right_answers
from elfnet.reproduce.same_recipe import content_of, recipe_hash, without_places
from elfnet.reproduce.shown_points import BUDGETS, FULL
from elfnet.run.directory import RunDirectory, read_json

FORMAT = 1
KEPT = ("rule", "accuracy", "accuracy_by_group", "mean_cost", "worst_cost", "exit_share")
ALSO_KEPT = ("thresholds", "balanced_accuracy", "macro_f1", "exit_share_by_group")
NAMED = ("full", "accurate", "economic", "within-")
"""Points, by how their names begin, of which a table or a text may want to know more."""


def record_of(run: RunDirectory, cell: Cell, *, table: str, tier: str, baseline: ModelRecipe) -> dict[str, Any]:
    """The record of a run that was trained, calibrated and measured on the test split.

    Args:
        baseline: the network of the table's plain row, which costs are compared with.
    """
    info, log, metrics = run.info(), run.log(), read_json(run.metrics_file)
    recipe = run.recipe()
    content = content_of(recipe)
    seconds = sum(epoch.get("seconds", 0.0) for epoch in log)
    return {
        "format": FORMAT,
        "table": table,
        "row": cell.row.name,
        "column": cell.column.name,
        "seed": cell.seed,
        "tier": tier,
        "command": f"elfnet reproduce {table} --tier {tier} --rows {cell.row.name} --columns {cell.column.name} "
        f"--seeds {cell.seed}",
        "recipe_sha256": recipe_hash(content),
        "recipe": without_places(content),
        "versions": info["versions"],
        "hardware": info["hardware"],
        "machine": info["machine"],
        "data": _data(info["data"], held_out=not recipe.data.calibration and recipe.data.profile == "none"),
        "checkpoint_sha256": metrics["checkpoint_sha256"],
        # The row whose training it shares, and how much of it; null if it was trained for this row.
        "training_of": info.get("training_of"),
        "epochs_taken_over": info.get("epochs_taken_over"),
        "epochs": len(log),
        "seconds": round(seconds, 1),
        "seconds_per_epoch": round(seconds / len(log), 3) if log else None,
        "n": metrics["n"],
        "cost_unit": metrics["cost_unit"],
        "plain_multiply_adds": metrics["plain_multiply_adds"],
        "baseline_multiply_adds": _multiply_adds(baseline, info["data"]),
        "calibration": {
            point["name"]: {key: point["expected"][key] for key in ("accuracy", "balanced_accuracy", "mean_cost")}
            for point in read_json(run.policy_file)["points"]
        },
        "points": {name: _point(name, point) for name, point in metrics["points"].items()},
        "right": right_answers(run, (FULL, *BUDGETS)),
        "accuracy_by_class": metrics["points"]["full"]["accuracy_by_class"],
        "exits": metrics["exits"],
        "training": _training(log),
        # Such as the tau that was chosen; not the name of the run that it started from, which is a place.
        "refit": {name: value for name, value in info.get("refit", {}).items() if name not in ("run", "summary")},
    }


def _point(name: str, point: Mapping[str, Any]) -> dict[str, Any]:
    return {key: point[key] for key in (*KEPT, *(ALSO_KEPT if name.startswith(NAMED) else ()))}


def _multiply_adds(model: ModelRecipe, data: Mapping[str, Any]) -> int:
    """Of a plain network, for one image of this data. What a row calls its plain network may be another one."""
    height, width, channels = data["image_shape"]
    network = network_of(model, classes=len(data["class_counts"]), image_channels=channels)
    return count_cost(network, (channels, height, width)).plain


def _data(data: Mapping[str, Any], *, held_out: bool) -> dict[str, Any]:
    """Which data.

    Args:
        held_out: calibration took its images from training data of which nothing else was taken away, so that both
            together are what the data set has.
    """
    kept = {name: data[name] for name in ("fingerprint", "train", "calibration", "test", "class_counts")}
    return {**kept, "images": data["train"] + (data["calibration"] if held_out else 0)}


def _training(log: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The last epoch, and the last one before class weights came in: what the claims about training are about."""
    if not log:
        return {"before_weights": None, "last": None}
    weighted = [position for position, epoch in enumerate(log) if epoch.get("weights", "none") != "none"]
    before = log[weighted[0] - 1] if weighted and weighted[0] > 0 else None
    return {"before_weights": before, "last": log[-1]}
