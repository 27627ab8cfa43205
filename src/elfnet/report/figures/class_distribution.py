"""How many training images each class has, by rank, on a logarithmic scale."""

# Shapes: C classes

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from elfnet.data.groups import GROUP_NAMES
from elfnet.report.figures.style import (
    GROUP_LOOKS,
    MUTED,
    PAPER,
    in_house_style,
    literal,
    new_figure,
    plain_numbers,
)
from elfnet.report.run_figure import RunFigure
from elfnet.report.run_record import RunRecord

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_CLASSES_BY_NAME = 24


def class_distribution(record: RunRecord) -> RunFigure:
    counts_C = record.class_counts_C
    return RunFigure(
        "class-distribution",
        "Training images by class",
        f"Training split, n = {int(counts_C.sum()):,}; largest : smallest = {counts_C.max() / counts_C.min():.3g}. "
        f"Groups, with their numbers of classes: {record.groups.rule}.",
        lambda: draw_class_distribution(record.class_names, counts_C, record.group_of_class.tolist()),
    )


@in_house_style
def draw_class_distribution(
    class_names: Sequence[str], counts_C: Sequence[int] | NDArray[np.int64], group_of_class_C: Sequence[int]
) -> "Figure":
    """A bar with a name for each class; with many classes, the shape of the tail."""
    counts, groups = np.asarray(counts_C), np.asarray(group_of_class_C)
    order_C = np.argsort(-counts, kind="stable")
    named = len(counts) <= MOST_CLASSES_BY_NAME
    figure = new_figure(max(2.4, 1.0 + 0.21 * len(counts)) if named else 2.9)
    axes = figure.add_subplot()
    floor = 1.0 if counts.min() > 1 else 0.5
    if named:
        _named_bars(axes, [class_names[c] for c in order_C], counts[order_C], groups[order_C], floor)
    else:
        _outline(axes, counts[order_C], groups[order_C], floor)
    sizes = np.bincount(groups, minlength=len(GROUP_NAMES))
    from matplotlib.patches import Patch

    handles = [
        Patch(
            facecolor=GROUP_LOOKS[name].colour,
            edgecolor=PAPER,
            hatch=GROUP_LOOKS[name].hatch,
            label=f"{name}: {size}",
        )
        for name, size in zip(GROUP_NAMES, sizes, strict=True)
        if size
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles))
    return figure


def _named_bars(
    axes: Any, names: list[str], counts_C: NDArray[np.int64], group_C: NDArray[np.int64], floor: float
) -> None:
    for position, (count, group) in enumerate(zip(counts_C.tolist(), group_C.tolist(), strict=True)):
        look = GROUP_LOOKS[GROUP_NAMES[group]]
        axes.barh(
            position, count - floor, left=floor, height=0.74, color=look.colour, edgecolor=PAPER, hatch=look.hatch
        )
        axes.annotate(
            f"{count:,}",
            (count, position),
            xytext=(3, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            color=MUTED,
        )
    axes.set_yticks(range(len(names)), [literal(name, 22) for name in names])
    axes.set_xscale("log")
    axes.set_xlim(floor, float(counts_C.max()) * 1.9)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    plain_numbers(axes.xaxis)
    axes.set_xlabel("training images (log scale)")


def _outline(axes: Any, counts_C: NDArray[np.int64], group_C: NDArray[np.int64], floor: float) -> None:
    """One area a group: thousands of bars would make a large page and show no more."""
    rank_C = np.arange(len(counts_C))
    for index, name in enumerate(GROUP_NAMES):
        ranks = rank_C[group_C == index]
        if len(ranks) == 0:
            continue
        edges = np.append(ranks, ranks[-1] + 1)
        heights = np.append(counts_C[ranks], counts_C[ranks[-1]])
        look = GROUP_LOOKS[name]
        axes.fill_between(
            edges, floor, heights, step="post", facecolor=look.colour, edgecolor=PAPER, hatch=look.hatch, linewidth=0
        )
    axes.set_yscale("log")
    axes.set_xlim(0, len(counts_C))
    axes.set_ylim(floor, float(counts_C.max()) * 1.5)
    plain_numbers(axes.yaxis)
    axes.set_xlabel("classes, most frequent first")
    axes.set_ylabel("training images (log scale)")
