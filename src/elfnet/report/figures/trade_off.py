"""Accuracy against cost, for one run, several runs, or every pair of thresholds; and the cost of single examples."""

# Shapes: P points of a curve, N examples, V different costs

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from elfnet.calibrate.line_search import named_thresholds
from elfnet.calibrate.point_family import MULTIPLY_ADDS, Family
from elfnet.data.long_tail import GROUP_NAMES
from elfnet.evaluate.metrics import measure
from elfnet.evaluate.policy_replay import compute_confidences, replay
from elfnet.exits.policy import NEVER
from elfnet.exits.threshold import parse_threshold
from elfnet.report.figures.base import (
    BLUE,
    GROUP_STYLES,
    INK,
    MUTED,
    PAPER,
    POINT_MARKERS,
    FigureOrReason,
    NoFigure,
    RunFigure,
    SeriesStyle,
    label_text,
    new_figure,
    series_style,
    styled,
)
from elfnet.report.record import RunRecord
from elfnet.run.results import CurvePoint, Metrics

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ABLATION = "threshold-ablation"


@dataclass(frozen=True)
class CurveLine:
    """One line of the figure; a line of one point, which is a plain network, is drawn as a marker.

    Attributes:
        label: text in the legend.
        cost_P: mean cost relative to the plain backbone.
        accuracy_P: fractions of 1.
        marks: chosen operating points by name, as (cost, accuracy).
        family: operating points that are best for a budget, as (cost, accuracy).
    """

    label: str
    style: SeriesStyle
    cost_P: Sequence[float]
    accuracy_P: Sequence[float]
    marks: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    family: Sequence[tuple[float, float]] = ()


def accuracy_against_cost(record: RunRecord) -> FigureOrReason:
    """Accuracy against cost of one run, one line per frequency group."""
    name = "accuracy-against-cost"
    if record.plain:
        return NoFigure(name, f"{record.name} is a plain network: one point, not a curve")
    sizes = record.at("full").n_by_group
    groups = [group for group in ("all", *GROUP_NAMES) if group == "all" or sizes[group]]
    lines = [_curve_line(record, group, group, GROUP_STYLES[group], with_family=False) for group in groups]
    in_groups = ", ".join(f"{group} {sizes[group]:,}" for group in groups[1:])
    return RunFigure(
        name,
        "Accuracy against cost by frequency group",
        f"One threshold for all exits, from 0 (all examples take exit 1) up to 1. Full depth runs no early heads. "
        f"{record.measured_on} ({in_groups}).",
        lambda: draw_accuracy_cost_curve(lines, unit=record.short_cost_unit),
    )


def accuracy_against_cost_of_runs(records: Sequence[RunRecord], group: str = "all") -> RunFigure:
    """Accuracy against cost of several runs, one line per run; a network without early exits is one point."""
    lines = [_curve_line(record, group, record.name, series_style(position)) for position, record in enumerate(records)]
    sizes = [record.at("full").n if group == "all" else record.at("full").n_by_group[group] for record in records]
    n = f"{sizes[0]:,}" if len(set(sizes)) == 1 else ", ".join(f"{size:,}" for size in sizes)
    has_family = any(line.family for line in lines)
    family = " Dots: best points of the family for a budget, chosen on the calibration split." if has_family else ""
    return RunFigure(
        "accuracy-against-cost-of-runs" + ("" if group == "all" else f"-{group}"),
        "All classes" if group == "all" else f"Rare classes ({group})",
        f"One line per run: one threshold for all exits, from 0 up to 1; a network without early exits is one point."
        f"{family} {records[0].results.split.capitalize()} split, n = {n}.",
        lambda: draw_accuracy_cost_curve(lines, unit=records[0].short_cost_unit),
    )


def rarest_common_group(records: Sequence[RunRecord]) -> str | None:
    """Return the rarest group with test examples in every run; None if there is only one such group."""
    common = [group for group in GROUP_NAMES if all(record.at("full").n_by_group[group] for record in records)]
    return common[-1] if len(common) > 1 else None


def _accuracy(source: Metrics | CurvePoint, group: str) -> float | None:
    return source.accuracy if group == "all" else source.accuracy_by_group[group]


def budget_points(family: Family) -> list[str]:
    """Return the points that `Family.for_budget` chooses for some budget, by increasing cost."""
    budgets = sorted(point.expected.mean_cost for point in family.points)
    return list(dict.fromkeys(family.for_budget(budget).name for budget in budgets))


def _curve_line(
    record: RunRecord, group: str, label: str, style: SeriesStyle, *, with_family: bool = True
) -> CurveLine:
    known = [
        (point.mean_cost, accuracy)
        for point in record.results.curve
        # Full depth has its own mark: without early heads it is cheaper than the points before it.
        if (record.plain or point.threshold < NEVER) and (accuracy := _accuracy(point, group)) is not None
    ]
    names = [] if record.plain else list(POINT_MARKERS)
    marks = {name: _cost_and_accuracy(record, name, group) for name in names}
    chosen = budget_points(record.family) if with_family and not record.plain else []
    family = [_cost_and_accuracy(record, name, group) for name in chosen]
    return CurveLine(
        label=label,
        style=style,
        cost_P=[cost for cost, _ in known],
        accuracy_P=[accuracy for _, accuracy in known],
        marks={name: mark for name, mark in marks.items() if mark is not None},
        family=[mark for mark in family if mark is not None],
    )


def _cost_and_accuracy(record: RunRecord, point: str, group: str) -> tuple[float, float] | None:
    metrics = record.at(point)
    accuracy = _accuracy(metrics, group)
    return None if accuracy is None else (metrics.mean_cost, accuracy)


@styled
def draw_accuracy_cost_curve(lines: Sequence[CurveLine], *, unit: str = MULTIPLY_ADDS) -> "Figure":
    """Draw lines from low to high cost, with the plain backbone's cost of 1 marked."""
    from matplotlib.lines import Line2D

    figure = new_figure(3.9)
    axes = figure.add_subplot()
    handles = [_draw_line(axes, line) for line in lines]
    marked = [name for name in POINT_MARKERS if any(name in line.marks for line in lines)]
    handles += [
        Line2D([], [], linestyle="none", color=INK, marker=POINT_MARKERS[name][0], markersize=5.5, label=name)
        for name in marked
    ]
    if any(line.family for line in lines):
        handles.append(Line2D([], [], linestyle="none", color=INK, marker=".", markersize=7, label="best for a budget"))
    axes.axvline(1.0, color=MUTED, linewidth=1.0, linestyle=(0, (4, 3)), zorder=1)
    axes.margins(x=0.06, y=0.08)
    axes.annotate(
        "plain backbone",
        (1.0, 1.0),
        xycoords=("data", "axes fraction"),  # above the axes, where no line passes
        xytext=(0, 2),
        textcoords="offset points",
        ha="center",
        va="bottom",
        fontsize=8,
        color=MUTED,
    )
    axes.set_xlabel(f"mean cost ({unit})")
    axes.set_ylabel("accuracy (%)")
    # As many columns as fit into the width of the figure.
    longest = max(len(handle.get_label()) for handle in handles)
    columns = min(4 if longest <= 8 else 3 if longest <= 14 else 2, len(handles))
    figure.legend(handles=handles, loc="outside upper center", ncols=columns)
    return figure


def _draw_line(axes: Any, line: CurveLine) -> Any:
    """Draw one line with its marks; return the handle for the legend."""
    single = len(line.cost_P) == 1
    (handle,) = axes.plot(
        line.cost_P,
        [100 * accuracy for accuracy in line.accuracy_P],
        color=line.style.colour,
        linestyle="none" if single else line.style.line,
        # Hollow and on top, so that it does not hide operating points close to it.
        marker=line.style.marker if single else "none",
        markersize=9,
        markerfacecolor="none",
        markeredgewidth=1.6,
        label=label_text(line.label),
        zorder=11 if single else 2,
    )
    if line.family:
        costs, accuracies = zip(*line.family, strict=True)
        axes.plot(
            costs,
            [100 * accuracy for accuracy in accuracies],
            linestyle="none",
            marker=".",
            markersize=7,
            color=line.style.colour,
            markeredgecolor=PAPER,
            markeredgewidth=0.5,
            zorder=3,
        )
    for name, (cost, accuracy) in line.marks.items():
        marker, size = POINT_MARKERS[name]
        axes.plot(
            [cost],
            [100 * accuracy],
            linestyle="none",
            marker=marker,
            markersize=size,
            color=line.style.colour,
            markeredgecolor=PAPER,
            markeredgewidth=0.8,
            # Smaller marks on top, so that two names of one point are both visible.
            zorder=10 - size / 10,
        )
    return handle


def cost_histogram(record: RunRecord) -> FigureOrReason:
    """Share of the examples by their cost, at the chosen operating points."""
    name = "cost-histogram"
    if record.plain:
        return NoFigure(name, f"{record.name} is a plain network: every example costs the same")
    if record.table is None:
        return NoFigure(name, record.no_table)
    costs = {point: share_by_cost(record.replayed(point).cost_N) for point in POINT_MARKERS}
    return RunFigure(
        name,
        "Cost per example",
        f"Share of the examples by cost; each exit has one cost. Solid line: mean; dashed line: plain backbone. "
        f"{record.measured_on}.",
        lambda: draw_cost_histogram(costs, unit=record.short_cost_unit),
    )


def share_by_cost(cost_N: NDArray[np.float64]) -> dict[float, float]:
    """Return the share of the examples with each cost, by increasing cost."""
    cost_V, count_V = np.unique(cost_N, return_counts=True)
    return {float(cost): float(count / len(cost_N)) for cost, count in zip(cost_V, count_V, strict=True)}


@styled
def draw_cost_histogram(costs: Mapping[str, Mapping[float, float]], *, unit: str = MULTIPLY_ADDS) -> "Figure":
    """Draw one panel per operating point with one bar per cost; shares are fractions of 1."""
    figure = new_figure(0.6 + 1.05 * len(costs))
    panels = figure.subplots(len(costs), 1, sharex=True, sharey=True, squeeze=False).ravel()
    highest = max((cost for shares in costs.values() for cost in shares), default=1.0)
    for axes, (point, shares) in zip(panels, costs.items(), strict=True):
        axes.bar(
            list(shares), [100 * share for share in shares.values()], width=0.035 * highest, color=BLUE, edgecolor=PAPER
        )
        for cost, share in shares.items():
            axes.annotate(
                f"{100 * share:.0f} %",
                (cost, 100 * share),
                xytext=(0, 1.5),
                textcoords="offset points",
                ha="center",
                fontsize=8,
                bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 0.6},
            )
        mean = sum(cost * share for cost, share in shares.items())
        axes.axvline(mean, color=INK, linewidth=1.2, zorder=1)
        axes.axvline(1.0, color=MUTED, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
        axes.set_title(f"{point}: mean {mean:.3f}", loc="left")
        axes.grid(visible=False, axis="x")
    panels[0].set_ylim(0, 119)
    panels[0].set_yticks([0, 50, 100])
    panels[0].set_xlim(0, max(1.0, highest) * 1.06)
    panels[-1].set_xlabel(f"cost ({unit})")
    figure.supylabel("examples (%)", fontsize=9)
    return figure


@dataclass(frozen=True)
class AblationPoint:
    """One pair (t, s): mean cost relative to the plain backbone, accuracy as a fraction of 1."""

    s: str
    mean_cost: float
    accuracy: float


def threshold_ablation(records: Sequence[RunRecord]) -> FigureOrReason:
    """Accuracy against cost for every pair (t, s), from the exit tables of runs that differ only in t.

    The values of s are the candidates in the recipe of the first run.
    """
    chosen = runs_by_training_threshold(records)
    if len(chosen) < 2:
        return NoFigure(_ABLATION, "the ablation needs at least two runs that differ only in exits.train_threshold")
    candidates = next(iter(chosen.values())).recipe.exits.search
    lines = {t: ablation_points(record, candidates) for t, record in chosen.items()}
    first = next(iter(chosen.values()))
    highest = {t: max(point.accuracy for point in points) for t, points in lines.items()}
    spread = 100 * (max(highest.values()) - min(highest.values()))
    return RunFigure(
        _ABLATION,
        "Training and inference thresholds",
        f"One line per training threshold t (one run each), one mark per inference threshold s: "
        f"{', '.join(candidates)}. The highest accuracies of the lines differ by {spread:.1f} points. "
        f"{first.measured_on}.",
        lambda: draw_threshold_ablation(lines, unit=first.short_cost_unit),
    )


def runs_by_training_threshold(records: Sequence[RunRecord]) -> dict[str, RunRecord]:
    """Return the largest set of runs whose recipes differ only in t, one run per t, by increasing t."""
    sets: dict[str, dict[str, RunRecord]] = {}
    for record in records:
        if record.plain or record.table is None or record.recipe.exits.rule != "elf":
            continue
        exits = record.recipe.exits.model_copy(update={"train_threshold": "", "search": ("",)})
        rest = record.recipe.model_copy(update={"exits": exits}).model_dump_json()
        sets.setdefault(rest, {}).setdefault(record.recipe.exits.train_threshold, record)
    largest: Mapping[str, RunRecord] = max(sets.values(), key=len, default={})
    classes = records[0].info.data.classes if records else 1
    return dict(sorted(largest.items(), key=lambda pair: parse_threshold(pair[0], classes=classes)))


def ablation_points(record: RunRecord, candidates: Sequence[str]) -> list[AblationPoint]:
    """Replay the exit table with each s, at the confidence scale of the recipe."""
    table = record.table
    assert table is not None, "only runs with an exit table are chosen"
    derived = compute_confidences(table)
    points = []
    for name, threshold in named_thresholds(candidates, table.classes).items():
        policy = derived.uniform(name, threshold)
        metrics = measure(table, replay(derived, policy), with_confusion=False)
        points.append(AblationPoint(name.removeprefix("s="), metrics.mean_cost, metrics.accuracy))
    return points


@styled
def draw_threshold_ablation(lines: Mapping[str, Sequence[AblationPoint]], *, unit: str = MULTIPLY_ADDS) -> "Figure":
    """Draw one line per t; the first and the last s are labelled."""
    figure = new_figure(3.6)
    axes: Any = figure.add_subplot()
    for position, (t, points) in enumerate(lines.items()):
        style = series_style(position)
        axes.plot(
            [point.mean_cost for point in points],
            [100 * point.accuracy for point in points],
            color=style.colour,
            linestyle=style.line,
            marker=style.marker,
            label=label_text(f"t = {t}"),
        )
    for end, offset, side in ((0, (0, 8), "center"), (-1, (0, 8), "right")):
        point = max((points[end] for points in lines.values()), key=lambda one: one.accuracy)
        axes.annotate(
            label_text(f"s = {point.s}"),
            (point.mean_cost, 100 * point.accuracy),
            xytext=offset,
            textcoords="offset points",
            ha=side,
            fontsize=8,
            color=MUTED,
        )
    axes.margins(x=0.08, y=0.14)
    axes.set_xlabel(f"mean cost ({unit})")
    axes.set_ylabel("accuracy (%)")
    figure.legend(loc="outside upper center", ncols=min(4, len(lines)))
    return figure
