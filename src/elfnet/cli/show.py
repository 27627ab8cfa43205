"""Printing results: tables for people, JSON for programs."""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

DASH = "–"


def console() -> Console:
    """Standard output; plain and wide in a pipe, so that lines are not broken in the middle."""
    return Console(width=None if sys.stdout.isatty() else 160, highlight=False)


def print_json(content: Any) -> None:
    sys.stdout.write(json.dumps(content, indent=2, allow_nan=False) + "\n")


def percent(value: float | None) -> str:
    """A fraction in percent; nothing to measure is a dash, never a zero."""
    return DASH if value is None else f"{100 * value:.1f}"


def shares(values: Sequence[float]) -> str:
    return " / ".join(f"{100 * value:.0f}" for value in values)


BASELINES = ("line search", "geometric")
"""Rules that are there to compare with; their points are many."""


def points_table(results: Mapping[str, Any], *, all_points: bool = True) -> Table:
    """Operating points: accuracy by group against cost."""
    exits = len(results["exits"])
    shown = {
        name: point
        for name, point in results["points"].items()
        if all_points or point["rule"] not in BASELINES or name in ("accurate", "economic")
    }
    caption = f"accuracy in %; cost in {results['cost_unit']}"
    if hidden := len(results["points"]) - len(shown):
        caption += f"; {hidden} baseline points not shown (--all)"
    table = Table(title=f"Operating points on {results['n']:,} {results['split']} images", caption=caption)
    table.add_column("point")
    for name in ("all", "many", "medium", "few", "mean cost", "worst cost"):
        table.add_column(name, justify="right")
    table.add_column(f"leave at exit 1..{exits}, %" if exits > 1 else "exits", justify="right")
    for name, point in shown.items():
        by_group = point["accuracy_by_group"]
        table.add_row(
            escape(name),
            percent(point["accuracy"]),
            *(percent(by_group[group]) for group in ("many", "medium", "few")),
            f"{point['mean_cost']:.3f}",
            f"{point['worst_cost']:.3f}",
            shares(point["exit_share"]) if exits > 1 else "1",
        )
    return table


def exits_table(results: Mapping[str, Any]) -> Table:
    """Every exit on its own, as if everybody left there."""
    table = Table(title="If everybody left at", caption="calibration error: 15 bins, top label")
    table.add_column("exit")
    for name in ("all", "many", "medium", "few", "cost", "calibration error"):
        table.add_column(name, justify="right")
    for quality in results["exits"]:
        table.add_row(
            str(quality["exit"]),
            percent(quality["accuracy"]),
            *(percent(quality["accuracy_by_group"][group]) for group in ("many", "medium", "few")),
            f"{quality['cost']:.3f}",
            f"{quality['calibration_error']:.3f}",
        )
    return table
