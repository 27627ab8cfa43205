"""Figures with one value per class: training images and accuracy."""

# Shapes: C classes

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from elfnet.data.long_tail import GROUP_NAMES
from elfnet.report.figures.base import (
    GROUP_STYLES,
    INK,
    MUTED,
    PAPER,
    POINT_MARKERS,
    RunFigure,
    label_text,
    new_figure,
    plain_log_ticks,
    series_style,
    styled,
)
from elfnet.report.record import RunRecord

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_NAMED_CLASSES = 24
"""With more classes than this, figures show ranks instead of names."""


def class_distribution(record: RunRecord) -> RunFigure:
    """Training images per class, most frequent first, on a logarithmic scale."""
    counts_C = record.class_counts
    return RunFigure(
        "class-distribution",
        "Training images by class",
        f"Training split, n = {int(counts_C.sum()):,}; largest : smallest = {counts_C.max() / counts_C.min():.3g}. "
        f"Groups with their number of classes: {record.groups.rule}.",
        lambda: draw_class_distribution(record.info.data.class_names, counts_C, record.group_of_class.tolist()),
    )


@styled
def draw_class_distribution(
    class_names: Sequence[str], counts_C: Sequence[int] | NDArray[np.int64], group_of_class_C: Sequence[int]
) -> "Figure":
    """Draw one named bar per class, or one area per group if there are many classes."""
    counts, groups = np.asarray(counts_C), np.asarray(group_of_class_C)
    order_C = np.argsort(-counts, kind="stable")
    named = len(counts) <= MAX_NAMED_CLASSES
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
            facecolor=GROUP_STYLES[name].colour,
            edgecolor=PAPER,
            hatch=GROUP_STYLES[name].hatch,
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
        style = GROUP_STYLES[GROUP_NAMES[group]]
        axes.barh(
            position, count - floor, left=floor, height=0.74, color=style.colour, edgecolor=PAPER, hatch=style.hatch
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
    axes.set_yticks(range(len(names)), [label_text(name, 22) for name in names])
    axes.set_xscale("log")
    axes.set_xlim(floor, float(counts_C.max()) * 1.9)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    plain_log_ticks(axes.xaxis)
    axes.set_xlabel("training images (log scale)")


def _outline(axes: Any, counts_C: NDArray[np.int64], group_C: NDArray[np.int64], floor: float) -> None:
    """Draw one area per group: thousands of bars would make the page large."""
    rank_C = np.arange(len(counts_C))
    for index, name in enumerate(GROUP_NAMES):
        ranks = rank_C[group_C == index]
        if len(ranks) == 0:
            continue
        edges = np.append(ranks, ranks[-1] + 1)
        heights = np.append(counts_C[ranks], counts_C[ranks[-1]])
        style = GROUP_STYLES[name]
        axes.fill_between(
            edges, floor, heights, step="post", facecolor=style.colour, edgecolor=PAPER, hatch=style.hatch, linewidth=0
        )
    axes.set_yscale("log")
    axes.set_xlim(0, len(counts_C))
    axes.set_ylim(floor, float(counts_C.max()) * 1.5)
    plain_log_ticks(axes.yaxis)
    axes.set_xlabel("classes, most frequent first")
    axes.set_ylabel("training images (log scale)")


def accuracy_by_class(record: RunRecord) -> RunFigure:
    """Accuracy per class at the chosen operating points, most frequent class first."""
    points = ("full",) if record.plain else tuple(POINT_MARKERS)
    order_C = np.argsort(-record.class_counts, kind="stable")
    accuracies = {point: [record.at(point).accuracy_by_class[c] for c in order_C] for point in points}
    names = [record.info.data.class_names[c] for c in order_C]
    smooth = "" if len(names) <= MAX_NAMED_CLASSES else " Lines: mean over neighbouring classes."
    return RunFigure(
        "accuracy-by-class",
        "Accuracy by class",
        f"Classes sorted by their number of training images, the most frequent "
        f"{'left' if smooth else 'on top'}.{smooth} {record.measured_on}.",
        lambda: draw_accuracy_by_class(names, accuracies),
    )


@styled
def draw_accuracy_by_class(names: Sequence[str], accuracies: Mapping[str, Sequence[float | None]]) -> "Figure":
    """Draw one row of marks per class, or dots and a running mean if there are many classes.

    Args:
        names: class names, in the order to show.
        accuracies: by operating point, one fraction of 1 per class; None for a class without examples.
    """
    named = len(names) <= MAX_NAMED_CLASSES
    figure = new_figure(max(2.4, 1.0 + 0.21 * len(names)) if named else 3.2)
    axes = figure.add_subplot()
    (_named if named else _by_rank)(axes, names, accuracies)
    figure.legend(loc="outside upper center", ncols=max(1, len(accuracies)))
    return figure


def _named(axes: Any, names: Sequence[str], accuracies: Mapping[str, Sequence[float | None]]) -> None:
    rows = np.arange(len(names))
    table_PC = np.array([_numbers(values) for values in accuracies.values()])
    # A line from the lowest to the highest mark of a class shows how much the choice of the point matters.
    known_C = ~np.isnan(table_PC).any(axis=0)
    axes.hlines(rows[known_C], table_PC[:, known_C].min(axis=0), table_PC[:, known_C].max(axis=0), color=MUTED, lw=1)
    for position, point in enumerate(accuracies):
        marker, size = POINT_MARKERS[point]
        axes.plot(
            table_PC[position],
            rows,
            linestyle="none",
            marker=marker,
            markersize=size,
            color=series_style(position).colour,
            markerfacecolor="none" if point == "full" else series_style(position).colour,
            label=point,
        )
    axes.set_yticks(rows, [label_text(name, 22) for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("accuracy (%)")


def _by_rank(axes: Any, names: Sequence[str], accuracies: Mapping[str, Sequence[float | None]]) -> None:
    ranks = np.arange(len(names))
    for position, (point, values) in enumerate(accuracies.items()):
        style, accuracy_C = series_style(position), _numbers(values)
        if position == 0:
            axes.plot(
                ranks, accuracy_C, linestyle="none", marker=".", markersize=2.5, color=INK, alpha=0.4, rasterized=True
            )
        axes.plot(ranks, running_mean(accuracy_C), color=style.colour, linestyle=style.line, label=point)
    axes.set_xlim(-1, len(names))
    axes.set_xlabel("classes, most frequent first")
    axes.set_ylabel("accuracy (%)")


def running_mean(values_C: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean over a window of a tenth of all values around each value, ignoring NaN."""
    half = max(1, len(values_C) // 20)
    known_C = ~np.isnan(values_C)
    sums = np.concatenate([[0.0], np.cumsum(np.where(known_C, values_C, 0.0))])
    sizes = np.concatenate([[0], np.cumsum(known_C)])
    low = np.maximum(np.arange(len(values_C)) - half, 0)
    high = np.minimum(np.arange(len(values_C)) + half + 1, len(values_C))
    with np.errstate(invalid="ignore"):
        mean_C: NDArray[np.float64] = (sums[high] - sums[low]) / (sizes[high] - sizes[low])
    return mean_C


def _numbers(values: Sequence[float | None]) -> NDArray[np.float64]:
    return np.array([np.nan if value is None else 100 * value for value in values], dtype=np.float64)
