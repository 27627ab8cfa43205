"""Collect finished runs into one JSON file each, and the tables made from them.

    python results/collect.py cifar10-lt-100 runs/cifar10/*

writes `results/cifar10-lt-100/<run>.json` for every run given, then `results/cifar10-lt-100/README.md` from all JSON
files that are there. Runs are compared with each other while their exit tables are at hand; the comparisons are kept.
"""

import itertools
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from elfnet import atomic
from elfnet.evaluate.bootstrap import paired_bootstrap
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.policy_replay import Replay, replay
from elfnet.exits.policy import full_depth
from elfnet.run.directory import RunDirectory, open_run

GROUPS = ("many", "medium", "few")
HERE = Path(__file__).parent
NOT_RUNS = ("comparisons.json", "rules.json", "hard-images.json")
PER_EXIT = ("budget=", "within-", "worst-group-within-", "risk=")
KEPT = {"n", "accuracy", "accuracy_by_group", "accuracy_by_class", "balanced_accuracy", "macro_f1"}
KEPT |= {"mean_cost", "worst_cost", "exit_share", "exit_share_by_group", "thresholds"}


def record_of(run: RunDirectory) -> dict[str, Any]:
    """What is worth keeping of a run: how it was made, what it measured, how training went."""
    info, log, results = run.info(), run.log(), run.results()
    recipe = run.recipe().model_dump(mode="json")
    recipe["data"] |= {"directory": "", "root": ""}  # where the files lay says nothing about the result
    switch = [record.epoch for record in log if record.weights != "none"]
    before = log[switch[0] - 1] if switch and switch[0] > 0 else log[-1]
    return {
        "recipe": recipe,
        "versions": info.versions,
        "hardware": info.hardware.to_json(),
        "machine": info.machine.to_json(),
        "class_counts": info.data.class_counts,
        "data_fingerprint": info.data.fingerprint,
        "checkpoint_sha256": results.checkpoint_sha256,
        "epochs": len(log),
        "training_minutes": round(sum(record.seconds for record in log) / 60, 1),
        "policy": {point["name"]: point["expected"] for point in json.loads(run.policy_file.read_text())["points"]},
        "test": {
            "points": {
                name: point.model_dump(mode="json", include=set(KEPT)) for name, point in results.points.items()
            },
            "exits": [quality.to_json() for quality in results.exits],
            "curve": [point.to_json() for point in results.curve],
        },
        "training": {"before_the_drop": before.to_json(), "last": log[-1].to_json()},
    }


def at_full_depth(run: RunDirectory) -> tuple[ExitTable, Replay]:
    table = ExitTable.open(run.table("test"))
    return table, replay(table, full_depth(table.exits, table.confidence_scale))


def comparisons(runs: dict[str, RunDirectory]) -> dict[str, Any]:
    """Every pair at full depth, by a paired bootstrap, in the order of their names: each pair has one key."""
    tables = {name: at_full_depth(run) for name, run in runs.items()}
    return {
        f"{second} minus {first}": paired_bootstrap(tables[first], tables[second]).to_dict()["differences"]
        for first, second in itertools.combinations(sorted(runs), 2)
    }


def percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"


def shares(values: list[float]) -> str:
    return " / ".join(f"{100 * value:.0f}" for value in values)


def table(columns: str, rows: Iterable[Sequence[str]]) -> list[str]:
    """A Markdown table; `columns` separated by bars."""
    names = [name.strip() for name in columns.split("|")]
    return [_row(names), _row(["---"] * len(names)), *(_row(cells) for cells in rows), ""]


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def point_cells(run: str, name: str, point: dict[str, Any]) -> list[str]:
    groups = [percent(point["accuracy_by_group"][group]) for group in GROUPS]
    costs = [f"{point['mean_cost']:.3f}", f"{point['worst_cost']:.3f}"]
    return [run, name, percent(point["accuracy"]), *groups, *costs, shares(point["exit_share"])]


def training_cells(run: str, record: dict[str, Any]) -> list[str]:
    last, before = record["training"]["last"], record["training"]["before_the_drop"]
    losses = " / ".join("–" if loss is None else f"{loss:.2f}" for loss in last["loss_by_exit"])
    by_exit = " / ".join(percent(quality["accuracy"]) for quality in record["test"]["exits"])
    cells = [run, by_exit, shares(before["exit_share"]), shares(last["exit_share"]), losses, last["increasing_loss"]]
    return [*cells, str(record["training_minutes"]), str(record["machine"]["threads"])]


def difference_text(difference: dict[str, float] | None) -> str:
    if difference is None:
        return "–"
    estimate, low, high = (f"{100 * difference[key]:+.1f}" for key in ("estimate", "low", "high"))
    return f"{estimate} ({low} to {high})"


def page(records: dict[str, dict[str, Any]], pairs: dict[str, Any]) -> str:
    some = next(iter(records.values()))
    points = [(run, name, point) for run, record in records.items() for name, point in record["test"]["points"].items()]
    chosen = [point for point in points if point[1] in ("full", "accurate", "economic")]
    searched = [point for point in points if point[1].startswith("s=") and len(point[2]["exit_share"]) > 1]
    per_exit = [point for point in points if point[1].startswith(PER_EXIT)]
    columns = "run | point | all | many | medium | few | mean cost | worst cost | leave at exits, %"
    lines = [
        "<!-- Written by results/collect.py from the JSON files beside it; do not edit. -->",
        f"Test split, n = {some['test']['points']['full']['n']:,}; training counts {some['class_counts']}; last epoch;",
        "one run a row. Accuracy in %. Cost: multiply-adds relative to the plain backbone, heads that are run.",
        "`accurate` and `economic` were chosen on the calibration split.",
        "",
        "## Operating points",
        *table(columns, (point_cells(*point) for point in chosen)),
        "## Thresholds per exit",
        "For a budget, for an accuracy floor, and with a promise; heads at which nobody may leave are not run.",
        "",
        *table(columns, (point_cells(*point) for point in per_exit)),
        "## The paper's family: every s that was searched",
        *table(columns, (point_cells(*point) for point in searched)),
        "## Training",
        "Before the drop: the last epoch at the full learning rate.",
        "",
        *table(
            "run | accuracy by exit | left before the drop, % | left at the end, % | loss by exit at the end"
            " | increasing loss | minutes | threads",
            (training_cells(run, record) for run, record in records.items()),
        ),
        "## Differences at full depth",
        "Points of accuracy with 95 % intervals of a paired bootstrap over the test images: what another test set",
        "would change, not what another training seed would.",
        "",
        *table(
            "pair | all | many | medium | few",
            ([pair, *(difference_text(found[key]) for key in ("all", *GROUPS))] for pair, found in pairs.items()),
        ),
    ]
    return "\n".join(lines)


def main(words: list[str]) -> None:
    folder = HERE / words[0]
    runs = {Path(word).name: open_run(word) for word in words[1:]}
    for name, run in runs.items():
        atomic.write_json(folder / f"{name}.json", record_of(run))
    pairs_file = folder / NOT_RUNS[0]
    pairs = json.loads(pairs_file.read_text()) if pairs_file.is_file() else {}
    pairs |= comparisons(runs)
    atomic.write_json(pairs_file, pairs)
    files = sorted(file for file in folder.glob("*.json") if file.name not in NOT_RUNS)
    atomic.write_text(folder / "README.md", page({file.stem: json.loads(file.read_text()) for file in files}, pairs))


if __name__ == "__main__":
    main(sys.argv[1:])
