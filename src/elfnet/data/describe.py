"""What the splits look like: as a dictionary for programs, as bars in a terminal for people."""

# Shapes: C classes

from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

from elfnet.data.groups import GROUP_NAMES, FrequencyGroups
from elfnet.data.splits import Splits

MOST_CLASSES_BY_NAME = 60
_CURVE_LINES = 40
_GROUP_STYLES = ("green", "yellow", "red")
_BLOCKS = " ▏▎▍▌▋▊▉█"  # eighths of a character


def describe(splits: Splits, groups: FrequencyGroups) -> dict[str, Any]:
    """Counts, groups and the imbalance ratio as plain data."""
    counts_C = splits.class_counts_C
    group_C = groups.of_classes(counts_C)
    return {
        "source": splits.source_name,
        "fingerprint": splits.fingerprint,
        "classes": len(splits.class_names),
        "image_shape": list(splits.train.images_NHWC.shape[1:]),
        "examples": {
            "train": len(splits.train),
            "calibration": len(splits.calibration),
            "test": len(splits.test),
        },
        "largest_class": int(counts_C.max()),
        "smallest_class": int(counts_C.min()),
        "imbalance_ratio": splits.imbalance_ratio,
        "group_rule": groups.rule,
        "groups": {
            name: {"classes": int((group_C == index).sum()), "examples": int(counts_C[group_C == index].sum())}
            for index, name in enumerate(GROUP_NAMES)
        },
        "missing_from_calibration": list(splits.missing_from_calibration),
        "per_class": [
            {
                "label": label,
                "name": name,
                "group": GROUP_NAMES[group_C[label]],
                "train": int(counts_C[label]),
                "calibration": int(splits.calibration_counts_C[label]),
                "test": int(splits.test_counts_C[label]),
            }
            for label, name in enumerate(splits.class_names)
        ],
    }


def render(splits: Splits, groups: FrequencyGroups) -> RenderableType:
    """The same for a terminal: a summary, then one bar a class, or a curve over the ranks where classes are many."""
    facts = describe(splits, groups)
    examples = facts["examples"]
    lines = [
        f"{facts['source']}: {facts['classes']} classes, {' x '.join(map(str, facts['image_shape']))} images",
        f"examples: {examples['train']:,} train, {examples['calibration']:,} calibration, {examples['test']:,} test",
        f"imbalance ratio: {facts['imbalance_ratio']:.4g}  "
        f"(largest class {facts['largest_class']:,}, smallest {facts['smallest_class']:,})",
        "groups: "
        + ", ".join(f"{name} {_dash_if_empty(facts['groups'][name])}" for name in GROUP_NAMES)
        + f"  ({groups.rule} training examples)",
    ]
    if missing := splits.missing_from_calibration:
        shown = ", ".join(str(label) for label in missing[:10]) + (" ..." if len(missing) > 10 else "")
        lines.append(f"without calibration examples: {len(missing)} classes ({shown})")
    by_name = len(splits.class_names) <= MOST_CLASSES_BY_NAME
    chart = _class_bars(splits, groups) if by_name else _rank_curve(splits, groups)
    # Text and not str: a class may be called "[bold]", and nothing of it is markup here.
    return Group(Text("\n".join(lines)), Text(""), chart)


def _dash_if_empty(group: dict[str, int]) -> str:
    return f"{group['classes']} classes / {group['examples']:,} examples" if group["classes"] else "-"


def _class_bars(splits: Splits, groups: FrequencyGroups) -> Table:
    counts_C = splits.class_counts_C
    table = _chart("class")
    for label, group in enumerate(groups.of_classes(counts_C)):
        table.add_row(Text(splits.class_names[label]), *_cells(int(counts_C[label]), int(counts_C.max()), int(group)))
    return table


def _rank_curve(splits: Splits, groups: FrequencyGroups) -> Table:
    """Classes sorted by count and cut into equal runs; each line shows the run's mean."""
    sorted_C = np.sort(splits.class_counts_C)[::-1]
    table = _chart("ranks")
    table.columns[1].header = "mean train"
    end = 0
    for run in np.array_split(sorted_C, _CURVE_LINES):
        start, end = end + 1, end + len(run)
        mean = int(np.rint(run.mean()))
        group = int(groups.of_classes(run)[len(run) // 2])
        table.add_row(Text(f"{start}-{end}"), *_cells(mean, int(sorted_C[0]), group))
    return table


def _chart(first: str) -> Table:
    table = Table(box=None, pad_edge=False, expand=True)
    table.add_column(first, overflow="ellipsis", no_wrap=True, max_width=24)
    table.add_column("train", justify="right", no_wrap=True)
    table.add_column("group", no_wrap=True)
    table.add_column("", ratio=1)
    return table


def _cells(count: int, largest: int, group: int) -> tuple[RenderableType, ...]:
    style = _GROUP_STYLES[group]
    return Text(f"{count:,}"), Text(GROUP_NAMES[group], style=style), _Bar(count / largest, style)


@dataclass(frozen=True)
class _Bar:
    """A horizontal bar as wide as the share of the space it is given; never wholly invisible."""

    share: float
    style: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        eighths = max(round(self.share * options.max_width * 8), 1)
        if options.ascii_only:
            bar = "#" * max(round(eighths / 8), 1)
        else:
            bar = "█" * (eighths // 8) + _BLOCKS[eighths % 8].strip()
        yield Segment(bar, Style.parse(self.style))
        yield Segment.line()

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(1, options.max_width)
