"""The record of a finished run: how it was made, what it measured, how training went.

A record is a JSON file of a few kilobytes without any path of the machine. Tables are made from records alone. It has
one bit per test image, so that two rows can be compared image by image when their runs are deleted.
"""

# Shapes: N test examples ordered by class, C classes

from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elfnet.calibrate.point_family import Family
from elfnet.data.long_tail import GROUP_NAMES, FrequencyGroups
from elfnet.evaluate.bootstrap import Difference, paired_differences
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.policy_replay import replay
from elfnet.models.build import network_of
from elfnet.models.flops import count_cost
from elfnet.recipe.roles import without_directories
from elfnet.recipe.schema import ModelRecipe
from elfnet.reproduce.cell import Cell
from elfnet.reproduce.paper_table import BUDGET_POINTS, FULL_DEPTH
from elfnet.reproduce.recipe_diff import recipe_dict, recipe_hash
from elfnet.reproduce.untuned import untuned_point
from elfnet.run.directory import RunDirectory
from elfnet.run.info import DataInfo, RefitInfo
from elfnet.run.log import EpochRecord
from elfnet.run.results import PointResults
from elfnet.train.epoch_statistics import best_test_epoch

FORMAT = 1
POINT_FIELDS = ("rule", "accuracy", "accuracy_by_group", "mean_cost", "worst_cost", "exit_share")
DETAIL_FIELDS = ("thresholds", "balanced_accuracy", "macro_f1", "exit_share_by_group")
DETAILED_POINTS = ("full", "accurate", "economic", "within-")
"""Points that have `DETAIL_FIELDS`, by the start of their names."""
RESAMPLES = 10_000

Record = Mapping[str, Any]


def make_record(run: RunDirectory, cell: Cell, *, table: str, tier: str, baseline: ModelRecipe) -> dict[str, Any]:
    """Make the record of a run that was trained, calibrated and measured on the test split.

    Args:
        baseline: the network of the table's baseline row, which costs are relative to.
    """
    info, log, results = run.info(), run.log(), run.results()
    recipe = run.recipe()
    content = recipe_dict(recipe)
    seconds = sum(epoch.seconds for epoch in log)
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
        "recipe": without_directories(content),
        "versions": info.versions,
        "hardware": info.hardware.to_json(),
        "machine": info.machine.to_json(),
        "data": _data(info.data, held_out=not recipe.data.calibration and recipe.data.profile == "none"),
        "checkpoint": Family.open(run.policy_file).checkpoint,
        "checkpoint_sha256": results.checkpoint_sha256,
        # The row whose training this run shares, and how many epochs of it; null if it shares none.
        "training_of": info.training_of,
        "epochs_taken_over": info.epochs_taken_over,
        "epochs": len(log),
        "seconds": round(seconds, 1),
        "seconds_per_epoch": round(seconds / len(log), 3) if log else None,
        "n": results.n,
        "cost_unit": results.cost_unit,
        "plain_multiply_adds": results.plain_multiply_adds,
        "baseline_multiply_adds": _multiply_adds(baseline, info.data),
        "calibration": {
            point.name: {key: getattr(point.expected, key) for key in ("accuracy", "balanced_accuracy", "mean_cost")}
            for point in Family.open(run.policy_file).points
        },
        "points": {name: _point(name, point) for name, point in results.points.items()},
        "untuned": untuned_point(run),
        "right": correct_answers(run, (FULL_DEPTH, *BUDGET_POINTS)),
        "accuracy_by_class": list(results.points["full"].accuracy_by_class),
        "exits": [quality.to_json() for quality in results.exits],
        "training": _training(log),
        # Selected on test; None unless the protocol scores test after every epoch.
        "best_test_epoch": best_test_epoch(log),
        # For example the tau that was chosen. The name of the source run is a path, and the summary contains it.
        "refit": {}
        if info.refit is None
        else info.refit.model_dump(mode="json", exclude={"run", "summary"}, exclude_unset=True),
    }


def correct_answers(run: RunDirectory, points: Iterable[str]) -> dict[str, Any]:
    """Return which test images a run classifies correctly, for those of the points that it has.

    Args:
        run: a run that was calibrated and measured on the test split.

    Returns:
        The number of test images per class, and for each point one bit per image, ordered by class.
    """
    family = Family.open(run.policy_file)
    table = ExitTable.open(run.table("test", family.checkpoint))
    family.require_checkpoint(table.checkpoint_sha256)
    by_class = np.argsort(table.labels_N, kind="stable")
    names = set(points)
    return {
        "examples_of_class": np.bincount(table.labels_N, minlength=table.classes).tolist(),
        "points": {
            point.name: pack_bits((replay(table, point.policy).prediction_N == table.labels_N)[by_class])
            for point in family.points
            if point.name in names
        },
    }


def compare_records(first: Record, second: Record, point: str) -> dict[str, Difference | None] | None:
    """Compare the accuracies of two records at a point, image by image: second minus first.

    Returns:
        The difference of all images ("all") and of each frequency group, None for a group without images; or None if
        the records are of different data or one does not have the point.
    """
    answers = [record.get("right", {}).get("points", {}).get(point) for record in (first, second)]
    if None in answers or first["data"]["fingerprint"] != second["data"]["fingerprint"]:
        return None
    examples_C = np.array(first["right"]["examples_of_class"])
    correct_first_N, correct_second_N = (_unpack_bits(text, int(examples_C.sum())) for text in answers)
    # Only groups are reported, so they take the place of classes here; this is faster with thousands of classes.
    data = first["recipe"]["data"]
    groups = FrequencyGroups(many_above=data["many_above"], few_below=data["few_below"])
    group_C = np.asarray(groups.of_classes(np.array(first["data"]["class_counts"])), dtype=np.int64)
    differences = paired_differences(
        correct_first_N,
        correct_second_N,
        np.repeat(group_C, examples_C),
        np.arange(len(GROUP_NAMES)),
        resamples=RESAMPLES,
    )
    return {name: differences[name] for name in ("all", *GROUP_NAMES)}


def pack_bits(correct_N: NDArray[np.bool_]) -> str:
    """Encode booleans as base64 text, one bit each."""
    return b64encode(np.packbits(correct_N).tobytes()).decode()


def _unpack_bits(text: str, examples: int) -> NDArray[np.bool_]:
    return np.unpackbits(np.frombuffer(b64decode(text), np.uint8), count=examples).astype(bool)


def _point(name: str, point: PointResults) -> dict[str, Any]:
    fields = {*POINT_FIELDS, *(DETAIL_FIELDS if name.startswith(DETAILED_POINTS) else ())}
    return point.model_dump(mode="json", include=fields)


def _multiply_adds(model: ModelRecipe, data: DataInfo) -> int:
    """Count the multiply-adds of a plain network for one image of this data.

    `plain_multiply_adds` of a run is that of its own network, which may differ from the baseline's.
    """
    height, width, channels = data.image_shape
    network = network_of(model, classes=data.classes, image_channels=channels)
    return count_cost(network, (channels, height, width)).plain


def _data(data: DataInfo, *, held_out: bool) -> dict[str, Any]:
    """Return which data was used.

    Args:
        held_out: whether the calibration split was taken from the training data and nothing else was removed. Training
            and calibration images together are then all images of the data set.
    """
    kept = data.model_dump(mode="json", include={"fingerprint", "train", "calibration", "test", "class_counts"})
    return {**kept, "images": data.train + (data.calibration if held_out else 0)}


def _refit(refit: RefitInfo) -> dict[str, Any]:
    return {name: value for name, value in refit.to_json().items() if name not in ("run", "summary")}


def _training(log: Sequence[EpochRecord]) -> dict[str, Any]:
    """Return the log records of the last epoch and of the last epoch before class weights apply."""
    if not log:
        return {"before_weights": None, "last": None}
    weighted = [position for position, epoch in enumerate(log) if epoch.weights != "none"]
    before = log[weighted[0] - 1] if weighted and weighted[0] > 0 else None
    return {"before_weights": None if before is None else before.to_json(), "last": log[-1].to_json()}
