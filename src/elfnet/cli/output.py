"""Output of the verbs: result tables, JSON, predictions as JSON lines, CSV or columns, and progress of predictions."""

import csv
import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from elfnet.inference.model import Prediction
from elfnet.inference.predict_files import Classified
from elfnet.progress import ProgressDisplay

if TYPE_CHECKING:
    from elfnet.run.results import Results

DASH = "–"
"""Stands for a missing value."""

BASELINES = ("line search", "geometric")
"""Rules of baseline points, which are many and hidden by default."""

FORMATS = ("jsonl", "csv", "table")
"""Formats of predictions."""

# Characters that make spreadsheets read a cell as a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def console() -> Console:
    """Return a console on standard output; if that is not a terminal, 160 columns wide."""
    return Console(width=None if sys.stdout.isatty() else 160, highlight=False)


def print_json(content: Any) -> None:
    """Print indented JSON to standard output."""
    sys.stdout.write(json.dumps(content, indent=2, allow_nan=False) + "\n")


def percent(value: float | None) -> str:
    """Format a fraction in percent; None is a dash."""
    return DASH if value is None else f"{100 * value:.1f}"


def shares(values: Sequence[float]) -> str:
    """Format fractions as whole percentages separated by slashes."""
    return " / ".join(f"{100 * value:.0f}" for value in values)


def points_table(
    results: "Results",
    *,
    all_points: bool = True,
    only: Sequence[str] | None = None,
    milliseconds: Mapping[str, float] | None = None,
) -> Table:
    """Return the table of operating points: accuracy by group, cost, and share of images per exit.

    Args:
        results: the content of metrics.json.
        all_points: whether to show the baseline points.
        only: names of the points to show; None for all.
        milliseconds: mean time per image of each point; None if times were not measured.
    """
    from elfnet.run.results import same_points

    exits = len(results.exits)
    shown = {
        name: point
        for name, point in results.points.items()
        if (all_points or point.rule not in BASELINES or name in ("accurate", "economic"))
        and (only is None or name in only)
    }
    rows = same_points(shown)
    # Equal on a balanced split.
    balanced = any(abs(point.accuracy - point.balanced_accuracy) > 5e-4 for point in shown.values())
    caption = f"accuracy in %; cost in {results.cost_unit}"
    if results.group_accuracy is not None:
        caption = f"accuracy in %, of groups the {results.group_accuracy}; cost in {results.cost_unit}"
    if hidden := len(results.points) - len(shown):
        caption += f"; {hidden} {'baseline' if only is None else 'other'} points: elfnet calibrate RUN --all"
    table = Table(title=f"Operating points on {results.n:,} {results.split} images", caption=caption)
    table.add_column("point")
    accuracies = ("all", *(["balanced"] if balanced else []), "many", "medium", "few")
    for name in (*accuracies, "mean cost", "worst cost", *(["ms per image"] if milliseconds else [])):
        table.add_column(name, justify="right")
    table.add_column(f"share at exit 1..{exits}, %" if exits > 1 else "exits", justify="right")
    for name, same in rows.items():
        point = shown[name]
        table.add_row(
            escape(", ".join(same)),
            percent(point.accuracy),
            *([percent(point.balanced_accuracy)] if balanced else []),
            *(percent(point.accuracy_by_group[group]) for group in ("many", "medium", "few")),
            f"{point.mean_cost:.3f}",
            f"{point.worst_cost:.3f}",
            *([f"{milliseconds[name]:#.3g}"] if milliseconds else []),
            shares(point.exit_share) if exits > 1 else "1",
        )
    return table


def exits_table(results: "Results") -> Table:
    """Return the table of exits: accuracy, cost and calibration error if all images used the same exit."""
    table = Table(title="If all images used one exit", caption="calibration error: 15 bins, top label")
    table.add_column("exit")
    for name in ("all", "many", "medium", "few", "cost", "calibration error"):
        table.add_column(name, justify="right")
    for quality in results.exits:
        table.add_row(
            str(quality.exit),
            percent(quality.accuracy),
            *(percent(quality.accuracy_by_group[group]) for group in ("many", "medium", "few")),
            f"{quality.cost:.3f}",
            f"{quality.calibration_error:.3f}",
        )
    return table


class Writer(Protocol):
    """Writes predictions, one per image file."""

    def write(self, result: Classified) -> None: ...


class JsonLines:
    """Predictions as JSON lines: one object per line, ASCII only, so that all file names are preserved."""

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
    """Predictions as CSV with a header line; label cells are empty if the model abstains."""

    def __init__(self, out: TextIO, *, top: int) -> None:
        self._rows, self._top = csv.writer(out, lineterminator="\n"), top if top > 1 else 0
        ranked = [f"top_{rank}_{what}" for rank in range(1, self._top + 1) for what in ("label", "probability")]
        self._rows.writerow(["file", "label", "class_index", "confidence", "exit", "cost", *ranked])

    def write(self, result: Classified) -> None:
        found = result.prediction
        # The same file, but spreadsheets do not read the name as a formula.
        file = f"./{result.file}" if result.file.startswith(_FORMULA) else result.file
        ranked: list[object] = [cell for pair in found.top for cell in pair] if self._top else []
        ranked += [""] * (2 * self._top - len(ranked))
        index = "" if found.class_index is None else found.class_index
        self._rows.writerow(
            [_writable(file), found.label or "", index, found.confidence, found.exit, found.cost, *ranked]
        )


class Columns:
    """Predictions in aligned columns for a terminal; the file name is last because its length varies."""

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
    """Replace bytes of a file name that are not valid text, so that it can be written."""
    return name.encode(errors="surrogateescape").decode(errors="replace")


class FileProgress(ProgressDisplay):
    """Progress of predictions for image files; a context manager.

    The total is unknown, because folders and lists are read while predictions are made.

    Args:
        shown: whether to show the bar; False if the predictions themselves go to the terminal.
    """

    def __init__(self, *, shown: bool) -> None:
        super().__init__(
            TextColumn("{task.completed:,} images"),
            BarColumn(),
            TextColumn("{task.fields[failed]} not read"),
            TimeElapsedColumn(),
            shown=shown,
            transient=True,
        )
        self._failed = 0
        self._bar = self._progress.add_task("", total=None, failed=0)

    def step(self) -> None:
        """Count one more image."""
        self._progress.update(self._bar, advance=1, failed=self._failed)

    def complain(self, reason: str) -> None:
        """Print why a file was not read, on one line and without control characters."""
        self._failed += 1
        line = "".join(character if character.isprintable() else "?" for character in " ".join(reason.split()))
        self.say(f"elfnet: {line}")
