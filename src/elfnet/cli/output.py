"""Printing results: tables for people, JSON for programs."""

import csv
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TextIO

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from elfnet.inference.model import Prediction
from elfnet.inference.predict_files import Classified

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


FORMATS = ("jsonl", "csv", "table")

# What spreadsheets take for a formula at the start of a cell.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class Writer(Protocol):
    def write(self, result: Classified) -> None: ...


class JsonLines:
    """One object a line, ASCII only, so that any file name survives."""

    def __init__(self, out: TextIO, *, top: int) -> None:
        self._out, self._top = out, top

    def write(self, result: Classified) -> None:
        found = result.prediction
        record: dict[str, object] = {
            "file": result.file,
            "label": found.label,
            "class_index": found.class_index,
            "confidence": found.confidence,
            "exit": found.exit,
            "cost": found.cost,
        }
        if self._top > 1:
            record["top"] = [{"label": label, "probability": probability} for label, probability in found.top]
        self._out.write(json.dumps(record, allow_nan=False) + "\n")


class Csv:
    """With a header line; an answer that was withheld is an empty cell."""

    def __init__(self, out: TextIO, *, top: int) -> None:
        self._rows, self._top = csv.writer(out, lineterminator="\n"), top if top > 1 else 0
        ranked = [f"top_{rank}_{what}" for rank in range(1, self._top + 1) for what in ("label", "probability")]
        self._rows.writerow(["file", "label", "class_index", "confidence", "exit", "cost", *ranked])

    def write(self, result: Classified) -> None:
        found = result.prediction
        # The same file under a name that no spreadsheet computes.
        file = f"./{result.file}" if result.file.startswith(_FORMULA) else result.file
        ranked: list[object] = [cell for pair in found.top for cell in pair] if self._top else []
        ranked += [""] * (2 * self._top - len(ranked))
        index = "" if found.class_index is None else found.class_index
        self._rows.writerow(
            [_writable(file), found.label or "", index, found.confidence, found.exit, found.cost, *ranked]
        )


class Columns:
    """For a terminal; the file name comes last, as it may be of any length."""

    def __init__(self, out: TextIO, *, top: int, longest_label: int) -> None:
        self._out, self._top = out, top
        self._width = max(5, min(30, longest_label))
        self._out.write(f"{'label':<{self._width}}  {'conf.':>6}  exit   cost  file\n")

    def write(self, result: Classified) -> None:
        found = result.prediction
        label = (DASH if found.label is None else found.label)[: self._width]
        file = "".join(character if character.isprintable() else "?" for character in result.file)
        self._out.write(
            f"{label:<{self._width}}  {found.confidence:6.3f}  {found.exit:>4}  {found.cost:5.3f}  {_writable(file)}"
            f"{self._others(found)}\n"
        )

    def _others(self, found: Prediction) -> str:
        if self._top == 1:
            return ""
        return "  " + ", ".join(f"{label} {probability:.3f}" for label, probability in found.top)


def _writable(name: str) -> str:
    """A file name that is no valid text is shown with replacement characters."""
    return name.encode(errors="surrogateescape").decode(errors="replace")
