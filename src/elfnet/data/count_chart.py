"""Class counts drawn in a terminal: one bar a class, or a curve over the ranks where classes are many."""

# Shapes: C classes

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

from elfnet.data.examples import Ints
from elfnet.data.groups import GROUP_NAMES, FrequencyGroups

MOST_CLASSES_BY_NAME = 60
_CURVE_LINES = 40
_GROUP_STYLES = ("green", "yellow", "red")
_BLOCKS = " ▏▎▍▌▋▊▉█"  # eighths of a character


def count_chart(class_names: Sequence[str], counts_C: Ints, groups: FrequencyGroups) -> Table:
    """Bars of the training counts, coloured by frequency group."""
    if len(class_names) <= MOST_CLASSES_BY_NAME:
        return _class_bars(class_names, counts_C, groups)
    return _rank_curve(counts_C, groups)


def _class_bars(class_names: Sequence[str], counts_C: Ints, groups: FrequencyGroups) -> Table:
    table = _chart("class")
    for label, group in enumerate(groups.of_classes(counts_C)):
        table.add_row(Text(class_names[label]), *_cells(int(counts_C[label]), int(counts_C.max()), int(group)))
    return table


def _rank_curve(counts_C: Ints, groups: FrequencyGroups) -> Table:
    """Classes sorted by count and cut into equal runs; each line shows the run's mean."""
    sorted_C = np.sort(counts_C)[::-1]
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
