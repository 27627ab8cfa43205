"""The content of table.json: mean and spread over seeds of every row and column, beside the published numbers."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from statistics import mean, stdev
from typing import Any

from elfnet.data.long_tail import GROUP_NAMES
from elfnet.evaluate.bootstrap import Difference
from elfnet.reproduce.cell import Cell, cell_recipe
from elfnet.reproduce.paper_table import (
    BUDGET_POINTS,
    FULL_DEPTH,
    SHOWN_POINTS,
    UNTUNED,
    Column,
    PaperTable,
    Row,
    Tier,
    get_tier,
    load_table,
)
from elfnet.reproduce.recipe_diff import RecipeDict, recipe_dict, recipe_diff
from elfnet.reproduce.record import Record, compare_records
from elfnet.reproduce.untuned import labels_used, stored_untuned

FORMAT = 1
Records = Mapping[tuple[str, str, int], Record]
"""By row, column and seed."""


def summarize(table: PaperTable, tier: Tier, records: Records) -> dict[str, Any]:
    """Return the content of table.json, made from the records of the runs."""
    changed: dict[str, list[Any]] = {}
    stand_ins: dict[str, str] = {}
    cells = []
    for column in table.columns:
        for row in table.rows:
            by_seed = {seed: record for (r, c, seed), record in records.items() if (r, c) == (row.name, column.name)}
            changes = _changed_settings(table.name, row, column, tier, by_seed.values())
            for name, value in changes.items():
                changed.setdefault(name, [])
                changed[name] += [value] if value not in changed[name] else []
            texts = [] if tier.data else [stand_in_text(column, record["data"]) for record in by_seed.values()]
            for text in filter(None, texts):
                stand_ins[column.name] = text
            as_in_paper = tier.name == "paper" and not changes.keys() - {"data.protocol"} and not any(texts)
            cells.append(_cell(row, column, by_seed, as_in_paper=as_in_paper))
    return {
        "format": FORMAT,
        "table": table.name,
        "title": table.title,
        "baseline": table.row(table.baseline).label,
        "source": table.source,
        "tier": tier.name,
        "tier_text": tier.text,
        "changed_settings": changed,
        "stand_ins": stand_ins,
        "groups": _group_limits(records.values()),
        "test_images": {
            column.name: sorted({record["n"] for (_, c, _), record in records.items() if c == column.name})
            for column in table.columns
        },
        "shared_trainings": _shared_trainings(table, records),
        "trained_at_double_cost": _two_branch_rows(table, records),
        "best_test_epochs": _best_test_epochs(table, records),
        "made_by": _made_by(records.values()),
        "has_groups": table.has_groups,
        "columns": [{"name": column.name, "label": _label(column, tier)} for column in table.columns],
        "rows": [
            {
                "name": row.name,
                "label": row.label,
                "in_paper": row.in_paper,
                "quoted": row.quoted,
                "can_run": row.method is not None,
            }
            for row in table.rows
        ],
        "cells": cells,
        "differences": compare_pairs(table, records),
    }


def _label(column: Column, tier: Tier) -> str:
    return f"{column.label} ({tier.data} instead)" if tier.data else column.label


def _cell(row: Row, column: Column, by_seed: Mapping[int, Record], *, as_in_paper: bool) -> dict[str, Any]:
    paper = row.paper.get(column.name)
    seeds = sorted(by_seed)
    records = [by_seed[seed] for seed in seeds]
    names = (*SHOWN_POINTS, *BUDGET_POINTS) if records else ()
    return {
        "row": row.name,
        "column": column.name,
        "state": "done" if records else "not run",
        "seeds": seeds,
        "n": len(seeds),
        "exits": max((len(record["exits"]) for record in records), default=None),
        "points": {
            **{name: _point([(r, r["points"][name]) for r in records if name in r["points"]]) for name in names},
            **({UNTUNED: _point(list(_untuned(records)))} if records else {}),
        },
        "untuned_setting": next((point["setting"] for _, point in _untuned(records)), None),
        "labels_used": {
            name: max((labels_used(record, name) for record in records), default=0) for name in (*names, UNTUNED)
        },
        "as_in_paper": as_in_paper if records else None,
        "paper": None if paper is None else {**paper.model_dump(), "cost": paper.cost},
    }


def _untuned(records: Iterable[Record]) -> Iterator[tuple[Record, Mapping[str, Any]]]:
    """Yield the records that have an untuned point, with the point."""
    for record in records:
        point = stored_untuned(record)
        if point is not None:
            yield record, point


def _point(records_and_points: Sequence[tuple[Record, Mapping[str, Any]]]) -> dict[str, Any] | None:
    if not records_and_points:
        return None
    records, points = zip(*records_and_points, strict=True)
    # A record's costs are relative to its own network without exits; the table's are relative to the baseline row's.
    scales = [record["plain_multiply_adds"] / record["baseline_multiply_adds"] for record in records]
    return {
        "n": len(points),
        "accuracy": spread([point["accuracy"] for point in points]),
        "accuracy_by_group": {
            group: spread([point["accuracy_by_group"].get(group) for point in points]) for group in GROUP_NAMES
        },
        "mean_cost": spread([point["mean_cost"] * scale for point, scale in zip(points, scales, strict=True)]),
        "worst_cost": max(point["worst_cost"] * scale for point, scale in zip(points, scales, strict=True)),
        "exit_share": [mean(shares) for shares in zip(*(point["exit_share"] for point in points), strict=True)],
    }


def spread(values: Sequence[float | None]) -> dict[str, float | None] | None:
    """Return mean and sample standard deviation.

    The deviation of a single value is None. The result is None if a value is missing, as for a group without images.
    """
    numbers = [value for value in values if value is not None]
    if len(numbers) < len(values) or not numbers:
        return None
    return {"mean": mean(numbers), "deviation": stdev(numbers) if len(numbers) > 1 else None}


def compare_pairs(table: PaperTable, records: Records) -> list[dict[str, Any]]:
    """Compare the pairs of a table image by image, by column and point, over the seeds that both rows have."""
    compared = []
    for column in table.columns:
        for pair in table.pairs:
            seeds = sorted(seed for row, name, seed in records if (row, name) == (pair.row, column.name))
            both = {
                seed: (records[pair.against, column.name, seed], records[pair.row, column.name, seed])
                for seed in seeds
                if (pair.against, column.name, seed) in records
            }
            for point in (FULL_DEPTH, *BUDGET_POINTS):
                differences = {
                    seed: difference
                    for seed, (against, row) in both.items()
                    if (difference := compare_records(against, row, point)) is not None
                }
                if differences:
                    compared.append(
                        {"column": column.name, "row": pair.row, "against": pair.against, "point": point}
                        | {"seeds": list(differences), "n": len(differences)}
                        | {name: _over_seeds(differences.values(), name) for name in ("all", *GROUP_NAMES)}
                    )
    return compared


def _over_seeds(differences: Iterable[Mapping[str, Difference | None]], name: str) -> dict[str, float | None] | None:
    """Return the mean difference of a group.

    One seed has the confidence interval over test images. Several seeds have their standard deviation, which includes
    the variation over test images.
    """
    found = [difference for by_group in differences if (difference := by_group[name]) is not None]
    if not found:
        return None
    low, high = (found[0].low, found[0].high) if len(found) == 1 else (None, None)
    return {
        "mean": mean(difference.estimate for difference in found),
        "deviation": stdev(difference.estimate for difference in found) if len(found) > 1 else None,
        "low": low,
        "high": high,
    }


def stand_in_text(column: Column, data: Mapping[str, Any]) -> str | None:
    """Return a note if the class counts are not those of the column's data set; None if they are.

    Args:
        data: `data` of a record.
    """
    counts = data["class_counts"]
    images = column.images_ldam_drw if data["images"] == column.images_ldam_drw else column.images
    pairs = [(len(counts), column.classes), (data["images"], images)]
    if column.largest is not None:
        pairs.append((max(counts), column.largest))
    if column.smallest is not None:
        pairs.append((min(counts), column.smallest))
    if all(found == real for found, real in pairs):
        return None
    return (
        f"{column.label}: a stand-in of {len(counts):,} classes and {data['images']:,} training images "
        f"({max(counts):,} to {min(counts):,} per class); the real data set has {column.classes:,} classes and "
        f"{column.images:,} images"
    )


def _changed_settings(table: str, row: Row, column: Column, tier: Tier, records: Iterable[Record]) -> dict[str, Any]:
    """Return the settings of the runs that differ from the shipped recipe at this tier."""
    changes: dict[str, Any] = {}
    for record in records:
        shipped = _shipped_recipe(table, row.name, column.name, tier.name)
        changes |= {name: value for name, _, value in recipe_diff(shipped, record["recipe"]) if name != "train.seed"}
    return changes


@cache
def _shipped_recipe(table: str, row: str, column: str, tier: str) -> RecipeDict:
    """Return the recipe of a cell without any setting of the user, for seed 0."""
    cell = Cell(load_table(table).row(row), load_table(table).column(column), 0)
    # Any path: rows that start from another run are not valid without one, and paths are not compared.
    source = "source run" if cell.row.starts_from else ""
    return recipe_dict(cell_recipe(cell, get_tier(tier), {}, starts_from=source))


def _best_test_epochs(table: PaperTable, records: Records) -> list[dict[str, Any]]:
    """Return the best test epoch of runs whose protocol scores test after every epoch; it is selected on test."""
    return [
        {
            "row": table.row(row).label,
            "column": table.column(column).label,
            "seed": seed,
            "cross_fitting": record["recipe"]["data"].get("cross_fitting", 0),
            **record["best_test_epoch"],
        }
        for (row, column, seed), record in records.items()
        if record.get("best_test_epoch")
    ]


def _group_limits(records: Iterable[Record]) -> list[dict[str, int]]:
    """Return the limits of the groups `many` and `few`, each combination once."""
    limits = {(r["recipe"]["data"]["many_above"], r["recipe"]["data"]["few_below"]) for r in records}
    return [{"many_above": many, "few_below": few} for many, few in sorted(limits)]


def _shared_trainings(table: PaperTable, records: Records) -> list[dict[str, str | int | list[str] | None]]:
    """Return the rows that share the training of another row.

    `epochs` is how many epochs they share, None for all. `runs` names column and seed of the runs that share them, None
    for all runs of the row. Which of two rows has the other's epochs depends on which is run first, so it may differ
    between seeds.
    """
    shared: dict[tuple[str, str, int | None], list[str]] = {}
    for (row, column, seed), record in sorted(records.items(), key=lambda item: item[0]):
        if record.get("training_of"):
            epochs = record.get("epochs_taken_over", record["epochs"])
            key = (row, record["training_of"], None if epochs == record["epochs"] else epochs)
            shared.setdefault(key, []).append(f"{table.column(column).label}, seed {seed}")
    runs_per_row = Counter(row for row, _, _ in records)
    order = [row.name for row in table.rows]
    return [
        {
            "row": table.row(row).label,
            "of": table.row(other).label,
            "epochs": epochs,
            "runs": None if len(runs) == runs_per_row[row] else runs,
        }
        for (row, other, epochs), runs in sorted(shared.items(), key=lambda item: order.index(item[0][0]))
    ]


def _two_branch_rows(table: PaperTable, records: Records) -> list[str]:
    """Return the labels of rows whose training steps run two batches (BBN); the cost at inference does not show it."""
    names = {row for (row, _, _), record in records.items() if record["recipe"]["model"]["branches"] == 2}
    return [row.label for row in table.rows if row.name in names]


def _made_by(records: Iterable[Record]) -> list[str]:
    """Return software and hardware of the runs, each combination once."""
    return sorted(
        {
            f"elfnet {r['versions']['elfnet']}, torch {r['versions'].get('torch', '?')}, Python "
            f"{r['versions']['python']}; {r['hardware']['processor']}, {r['machine']['device']}, "
            f"{r['machine']['precision']}"
            for r in records
        }
    )
