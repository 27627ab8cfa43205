"""The table as data: of every row and column the mean and spread over seeds, beside the paper's number."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from statistics import mean, stdev
from typing import Any

from elfnet.data.long_tail import GROUP_NAMES
from elfnet.reproduce.cell import Cell, recipe_of
from elfnet.reproduce.pair_differences import pair_differences
from elfnet.reproduce.paper_table import Column, PaperTable, Row, load_table
from elfnet.reproduce.same_recipe import Content, content_of, differences
from elfnet.reproduce.shown_points import BUDGETS, POINTS
from elfnet.reproduce.stand_in import stand_in
from elfnet.reproduce.tiers import Tier, tier_named

FORMAT = 1
Record = Mapping[str, Any]


def summarise(table: PaperTable, tier: Tier, records: Mapping[tuple[str, str, int], Record]) -> dict[str, Any]:
    """The content of table.json.

    Args:
        records: by row, column and seed.
    """
    changed: dict[str, list[Any]] = {}
    stand_ins: dict[str, str] = {}
    cells = []
    for column in table.columns:
        for row in table.rows:
            found = {seed: record for (r, c, seed), record in records.items() if (r, c) == (row.name, column.name)}
            changes = _changes(table.name, row, column, tier, found)
            for name, value in changes.items():
                changed.setdefault(name, [])
                changed[name] += [value] if value not in changed[name] else []
            texts = [] if tier.data else [stand_in(column, record["data"]) for record in found.values()]
            for text in filter(None, texts):
                stand_ins[column.name] = text
            as_in_paper = tier.name == "paper" and not changes and not any(texts)
            cells.append(_cell(row, column, found, as_in_paper=as_in_paper))
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
        "groups": _groups(records.values()),
        "test_images": {
            column.name: sorted({record["n"] for (_, c, _), record in records.items() if c == column.name})
            for column in table.columns
        },
        "shared_trainings": _shared_trainings(table, records),
        "trained_at_double_cost": _of_two_branches(table, records),
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
        "differences": pair_differences(table, records),
    }


def _label(column: Column, tier: Tier) -> str:
    return f"{column.label} ({tier.data} instead)" if tier.data else column.label


def _cell(row: Row, column: Column, found: Mapping[int, Record], *, as_in_paper: bool) -> dict[str, Any]:
    paper = row.paper.get(column.name)
    seeds = sorted(found)
    records = [found[seed] for seed in seeds]
    shown = (*POINTS, *BUDGETS)
    return {
        "row": row.name,
        "column": column.name,
        "state": "done" if found else "not run",
        "seeds": seeds,
        "n": len(seeds),
        "exits": max((len(record["exits"]) for record in records), default=None),
        "points": {name: _point([r for r in records if name in r["points"]], name) for name in shown} if found else {},
        "as_in_paper": as_in_paper if found else None,
        "paper": None if paper is None else {**paper.model_dump(), "cost": paper.cost},
    }


def _point(records: Sequence[Record], name: str) -> dict[str, Any] | None:
    if not records:
        return None
    points = [record["points"][name] for record in records]
    # Costs of a run are relative to its own network without exits, which is not every row's.
    unit = [record["plain_multiply_adds"] / record["baseline_multiply_adds"] for record in records]
    return {
        "n": len(points),
        "accuracy": spread([point["accuracy"] for point in points]),
        "accuracy_by_group": {
            group: spread([point["accuracy_by_group"].get(group) for point in points]) for group in GROUP_NAMES
        },
        "mean_cost": spread([point["mean_cost"] * each for point, each in zip(points, unit, strict=True)]),
        "worst_cost": max(point["worst_cost"] * each for point, each in zip(points, unit, strict=True)),
        "exit_share": [mean(shares) for shares in zip(*(point["exit_share"] for point in points), strict=True)],
    }


def spread(values: Sequence[float | None]) -> dict[str, float | None] | None:
    """Mean and sample standard deviation; one value has none, and no examples are not 0."""
    numbers = [value for value in values if value is not None]
    if len(numbers) < len(values) or not numbers:
        return None
    return {"mean": mean(numbers), "deviation": stdev(numbers) if len(numbers) > 1 else None}


def _changes(table: str, row: Row, column: Column, tier: Tier, found: Mapping[int, Record]) -> dict[str, Any]:
    """Settings of the runs that are not the recipe's at this tier."""
    changes: dict[str, Any] = {}
    for record in found.values():
        shipped = _shipped(table, row.name, column.name, tier.name)
        changes |= {name: value for name, _, value in differences(shipped, record["recipe"]) if name != "train.seed"}
    return changes


@cache
def _shipped(table: str, row: str, column: str, tier: str) -> Content:
    """The recipe of a cell as it is shipped, for seed 0."""
    cell = Cell(load_table(table).row(row), load_table(table).column(column), 0)
    start = "the run that it starts from" if cell.row.starts_from else ""
    return content_of(recipe_of(cell, tier_named(tier), {}, starts_from=start))


def _groups(records: Any) -> list[dict[str, int]]:
    """The boundaries of many and few, as the runs have them."""
    found = {(r["recipe"]["data"]["many_above"], r["recipe"]["data"]["few_below"]) for r in records}
    return [{"many_above": many, "few_below": few} for many, few in sorted(found)]


def _shared_trainings(
    table: PaperTable, records: Mapping[tuple[str, str, int], Record]
) -> list[dict[str, str | int | list[str] | None]]:
    """Rows that have the training of another row, and how many epochs of it.

    `epochs` is None for all of them, `runs` names the column and seed of each such run, or is None for every run of the
    row: with CE done first for one seed and CE+DRW for the next, each has the other's beginning once.
    """
    shared: dict[tuple[str, str, int | None], list[str]] = {}
    for (row, column, seed), record in sorted(records.items(), key=lambda item: item[0]):
        if record.get("training_of"):
            epochs = record.get("epochs_taken_over", record["epochs"])
            key = (row, record["training_of"], None if epochs == record["epochs"] else epochs)
            shared.setdefault(key, []).append(f"{table.column(column).label}, seed {seed}")
    in_all = Counter(row for row, _, _ in records)
    order = [row.name for row in table.rows]
    return [
        {
            "row": table.row(row).label,
            "of": table.row(other).label,
            "epochs": epochs,
            "runs": None if len(runs) == in_all[row] else runs,
        }
        for (row, other, epochs), runs in sorted(shared.items(), key=lambda item: order.index(item[0][0]))
    ]


def _of_two_branches(table: PaperTable, records: Mapping[tuple[str, str, int], Record]) -> list[str]:
    """Labels of rows whose every training step runs two batches (BBN), which no cost of inference shows."""
    found = {row for (row, _, _), record in records.items() if record["recipe"]["model"]["branches"] == 2}
    return [row.label for row in table.rows if row.name in found]


def _made_by(records: Any) -> list[str]:
    """Software and hardware of the runs."""
    return sorted(
        {
            f"elfnet {r['versions']['elfnet']}, torch {r['versions'].get('torch', '?')}, Python "
            f"{r['versions']['python']}; {r['hardware']['processor']}, {r['machine']['device']}, "
            f"{r['machine']['precision']}"
            for r in records
        }
    )
