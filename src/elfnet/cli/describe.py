"""Terminal rendering of `elfnet data describe`: a summary in words and a bar chart of the training counts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

from elfnet.data.sources.folder import ignored_line

Facts = Mapping[str, Any]

MAX_CLASSES_BY_NAME = 60
MAX_LISTED = 10  # entries of a list that are printed
_CURVE_LINES = 40
_GROUP_STYLES = {"many": "green", "medium": "yellow", "few": "red"}
_BLOCKS = " ▏▎▍▌▋▊▉█"  # eighths of a character


def render_description(facts: Facts) -> RenderableType:
    """Render a description for a terminal.

    Args:
        facts: The result of `describe_splits` or `describe_listing` of `elfnet.data.describe`.
    """
    # Text and not str: a class may be called "[bold]", and class names are not markup.
    return Group(Text("\n".join(_summary_lines(facts))), Text(""), count_chart(facts["per_class"]))


def _summary_lines(facts: Facts) -> list[str]:
    shape = f", {' x '.join(map(str, facts['image_shape']))} images" if "image_shape" in facts else ""
    lines = [
        f"{facts['source']}: {facts['classes']:,} classes{shape}",
        "examples: " + ", ".join(f"{count:,} {split}" for split, count in facts["examples"].items()),
        f"imbalance ratio: {facts['imbalance_ratio']:.4g}  "
        f"(largest class {facts['largest_class']:,}, smallest {facts['smallest_class']:,})",
        "groups: "
        + ", ".join(f"{name} {_group_size(group)}" for name, group in facts["groups"].items())
        + f"  ({facts['group_rule']} training examples)",
    ]
    if kept := facts.get("after_hold_out"):
        lines.append("after hold-out by 'elfnet train': " + ", ".join(f"{n:,} {split}" for split, n in kept.items()))
    if line := ignored_line(facts.get("ignored", {})):
        lines.append(line)
    if missing := facts.get("missing_from_calibration"):
        names = [facts["per_class"][label]["name"] for label in missing[:MAX_LISTED]]
        shown = ", ".join(names) + (" ..." if len(missing) > MAX_LISTED else "")
        lines.append(f"without calibration examples: {len(missing)} classes ({shown})")
    for split, column in facts.get("group_column", {}).items():
        lines.append(f"{split}: {column['groups']:,} groups that stay together, the largest of {column['largest']:,}")
    return lines + (_file_lines(facts["files"]) if "files" in facts else [])


def _group_size(group: Mapping[str, int]) -> str:
    return f"{group['classes']} classes / {group['examples']:,} examples" if group["classes"] else "-"


def _file_lines(files: Facts) -> list[str]:
    """The result of `--deep` in words; long lists are cut."""
    shorter, longer = (" / ".join(map(str, files[side].values())) for side in ("shorter_side", "longer_side"))
    across, conflicting = files["duplicates_across_splits"], files["duplicates_of_different_classes"]
    return [
        f"files: {files['files']:,}, {files['megabytes']:,.1f} MB; smallest / median / largest shorter side {shorter}, "
        f"longer side {longer} pixels",
        f"unreadable: {len(files['unreadable']):,}",
        *_listed(files["unreadable"]),
        f"same content in two splits: {len(across):,}",
        *_listed([f"{one} = {other}" for one, other in across]),
        f"same content within a split: {files['duplicates_within_splits']:,}; with different classes: "
        f"{len(conflicting):,}",
        *_listed([f"{one} = {other}" for one, other in conflicting]),
    ]


def _listed(entries: Sequence[str]) -> list[str]:
    more = [f"  ... and {len(entries) - MAX_LISTED:,} more"] if len(entries) > MAX_LISTED else []
    return [f"  {entry}" for entry in entries[:MAX_LISTED]] + more


def count_chart(per_class: Sequence[Facts]) -> Table:
    """Bars of the training counts, coloured by frequency group: one per class, or a curve over the ranks if many.

    Args:
        per_class: `name`, `group` and training count `train` of each class.
    """
    largest = max(one["train"] for one in per_class)
    if len(per_class) <= MAX_CLASSES_BY_NAME:
        table = _empty_chart("class", "train")
        for one in per_class:
            table.add_row(Text(one["name"]), *_count_cells(one["train"], largest, one["group"]))
        return table
    table = _empty_chart("ranks", "mean train")
    ranked = sorted(per_class, key=lambda one: -int(one["train"]))
    end = 0
    for run in np.array_split(np.arange(len(ranked)), _CURVE_LINES):
        start, end = end + 1, end + len(run)
        mean = int(np.rint(np.mean([ranked[rank]["train"] for rank in run])))
        group = ranked[int(run[len(run) // 2])]["group"]
        table.add_row(Text(f"{start}-{end}"), *_count_cells(mean, largest, group))
    return table


def _empty_chart(first: str, count: str) -> Table:
    table = Table(box=None, pad_edge=False, expand=True)
    table.add_column(first, overflow="ellipsis", no_wrap=True, max_width=24)
    table.add_column(count, justify="right", no_wrap=True)
    table.add_column("group", no_wrap=True)
    table.add_column("", ratio=1)
    return table


def _count_cells(count: int, largest: int, group: str) -> tuple[RenderableType, ...]:
    style = _GROUP_STYLES[group]
    return Text(f"{count:,}"), Text(group, style=style), _Bar(count / largest, style)


@dataclass(frozen=True)
class _Bar:
    """A horizontal bar that fills `fraction` of the available width, and at least an eighth of a character."""

    fraction: float
    style: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        eighths = max(round(self.fraction * options.max_width * 8), 1)
        if options.ascii_only:
            bar = "#" * max(round(eighths / 8), 1)
        else:
            bar = "█" * (eighths // 8) + _BLOCKS[eighths % 8].strip()
        yield Segment(bar, Style.parse(self.style))
        yield Segment.line()

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(1, options.max_width)
