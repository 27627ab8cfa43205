"""Figures about exits on the test split: exit shares, reliability, confidence in the true class."""

# Shapes: E exits, N examples, B bins of confidence, C classes

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from elfnet.data.long_tail import GROUP_NAMES, head_classes
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.metrics import BINS, calibration_error
from elfnet.evaluate.policy_replay import CHUNK_BYTES, confidences_for_policy
from elfnet.exits.policy import ConfidenceSpec, probability_and_prediction
from elfnet.recipe.stages import final_recipe, loss_scale
from elfnet.report import formatting as fmt
from elfnet.report.figures.base import (
    BLUE,
    MUTED,
    PAPER,
    FigureOrReason,
    NoFigure,
    RunFigure,
    label_text,
    new_figure,
    series_style,
    styled,
)
from elfnet.report.record import HALVES, RunRecord

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PANELS_PER_ROW = 2
BASELINE_RULES = ("line search", "geometric")
MAX_POINTS = 14
"""With more operating points than this, the exit shares show the chosen ones and others at equal steps of cost."""
MAX_LINES = 2
MIN_BIN_SIZE = 10
"""Bins of the reliability diagram with fewer examples are not drawn."""
MAX_MARKER_AREA = 110.0
"""Area in square points of the mark of a bin that contains all examples."""
TRUE_CLASS_BINS = 10
LOW, HIGH = 0.1, 0.9
_HALF_STYLES = {"head": (BLUE, ""), "tail": ("#e69f00", "////")}


def exit_shares_at_points(record: RunRecord) -> FigureOrReason:
    """Share of the examples at each exit, by frequency group and operating point."""
    name = "exit-shares"
    if record.plain:
        return NoFigure(name, f"{record.name} is a plain network: it has one exit only")
    points = points_to_show(record)
    shares: dict[str, list[Sequence[float] | None]] = {
        group: [
            record.at(point).exit_share if group == "all" else record.at(point).exit_share_by_group[group]
            for point in points
        ]
        for group in ("all", *GROUP_NAMES)
    }
    shares = {group: rows for group, rows in shares.items() if any(row is not None for row in rows)}
    number = len(_distinct_points(record))
    some = "" if len(points) == number else f" {len(points)} of {number} points."
    return RunFigure(
        name,
        "Exit shares",
        f"Share of the examples that take each exit, by operating point (cheapest on top) and frequency group.{some} "
        f"{record.measured_on}.",
        lambda: draw_exit_shares_at_points(list(points.values()), shares),
    )


def points_to_show(record: RunRecord) -> dict[str, str]:
    """Return at most `MAX_POINTS` operating points by increasing cost, each with all its names as label."""
    chosen: dict[str, list[str]] = {}
    for point in record.family.points:
        if point.same_as is not None:
            chosen.setdefault(point.same_as, []).append(point.name)
    distinct = sorted(_distinct_points(record), key=lambda name: record.at(name).mean_cost)
    kept = {name for name in distinct if name in chosen or name == "full"}
    others = [name for name in distinct if name not in kept and name in _without_baselines(record)]
    room = MAX_POINTS - len(kept)
    if len(others) > room:
        others = [others[step] for step in np.linspace(0, len(others) - 1, max(room, 0)).round().astype(np.int64)]
    kept.update(others)
    return {name: ", ".join([name, *chosen.get(name, [])]) for name in distinct if name in kept}


def _without_baselines(record: RunRecord) -> set[str]:
    """Return the points of rules other than the baselines; all points if there are no others."""
    used = {point.name for point in record.family.points if point.rule not in BASELINE_RULES}
    return used if used > {"full"} else set(record.family.names())


def _distinct_points(record: RunRecord) -> list[str]:
    return [point.name for point in record.family.points if point.same_as is None]


@styled
def draw_exit_shares_at_points(
    points: Sequence[str], shares: Mapping[str, Sequence[Sequence[float] | None]]
) -> "Figure":
    """Draw one panel per group with one bar per point.

    Args:
        points: labels of the operating points, the first on top.
        shares: by group, one row of E shares per point; None if the group has no examples.
    """
    rows = -(-len(shares) // PANELS_PER_ROW)
    figure = new_figure(0.7 + rows * (0.45 + 0.155 * len(points)))
    panels = figure.subplots(rows, PANELS_PER_ROW, sharex=True, sharey=True, squeeze=False).ravel()
    handles = {}
    for axes, (group, share_rows) in zip(panels, shares.items(), strict=False):
        axes.set_title(group, loc="left")
        axes.grid(visible=False)
        axes.tick_params(axis="y", length=0)
        known = [(position, row) for position, row in enumerate(share_rows) if row is not None]
        if not known:
            axes.text(0.5, 0.5, "no examples", transform=axes.transAxes, ha="center", va="center", color=MUTED)
            continue
        positions = np.array([position for position, _ in known])
        share_PE = 100 * np.array([row for _, row in known])
        left = np.zeros(len(known))
        for k in range(share_PE.shape[1]):
            handles[k] = axes.barh(
                positions,
                share_PE[:, k],
                left=left,
                height=0.8,
                color=series_style(k).colour,
                edgecolor=PAPER,
                linewidth=0.5,
                hatch=series_style(k).hatch,
                label=f"exit {k + 1}",
            )
            left += share_PE[:, k]
    for axes in panels[len(shares) :]:
        axes.set_visible(False)
    panels[0].set_yticks(range(len(points)), [label_text(point, 28) for point in points])
    panels[0].set_ylim(len(points) - 0.45, -0.55)
    panels[0].set_xlim(0, 100)
    for axes in panels[max(0, len(shares) - PANELS_PER_ROW) : len(shares)]:  # the lowest of each column
        axes.tick_params(labelbottom=True)
        axes.set_xlabel("examples (%)")
    figure.legend(handles=list(handles.values()), loc="outside upper center", ncols=min(5, len(handles)))
    return figure


@dataclass(frozen=True)
class Reliability:
    """Reliability diagram of one exit, evaluated on all examples; without bins that have too few examples.

    Attributes:
        confidence_B: mean confidence in each bin.
        accuracy_B: accuracy in each bin.
        share_B: share of all examples in each bin.
        error: expected calibration error, a fraction of 1.
    """

    confidence_B: NDArray[np.float64]
    accuracy_B: NDArray[np.float64]
    share_B: NDArray[np.float64]
    error: float


def reliability_by_exit(record: RunRecord) -> FigureOrReason:
    """Accuracy against confidence, one panel per exit."""
    name = "reliability"
    if record.table is None:
        return NoFigure(name, record.no_table)
    exits: dict[str, list[Reliability]] = {}
    # Points may differ in the scale of the logits before the softmax: as trained, or as calibrated. Each scale is one
    # line, under the name of its first point.
    seen: set[ConfidenceSpec] = set()
    for point in record.family.points:
        if point.policy.reading in seen or len(seen) == MAX_LINES:
            continue
        seen.add(point.policy.reading)
        derived = confidences_for_policy(record.table, point.policy)
        exits[point.name] = [
            reliability(derived.confidence_NE[:, k], derived.correct_NE[:, k]) for k in range(derived.table.exits)
        ]
    lines = "" if len(exits) == 1 else " Two lines: operating points with different scales of the confidence."
    return RunFigure(
        name,
        "Reliability by exit",
        f"Accuracy against mean confidence in {BINS} equal bins, without bins of fewer than {MIN_BIN_SIZE} examples. "
        f"Each exit is evaluated on all examples; larger marks stand for more examples. On the dashed line the "
        f"confidence equals the accuracy; below it, the confidence is too high. Error: expected calibration error."
        f"{lines} {record.measured_on}.",
        lambda: draw_reliability(exits),
    )


def reliability(
    confidence_N: NDArray[np.float64], correct_N: NDArray[np.bool_], *, bins: int = BINS, min_size: int = MIN_BIN_SIZE
) -> Reliability:
    """Return accuracy against confidence in the bins of `calibration_error`: equal widths, closed on the left."""
    bin_N = np.searchsorted(np.linspace(0.0, 1.0, bins + 1)[1:-1], confidence_N, side="right")
    size_B = np.bincount(bin_N, minlength=bins)
    some_B = size_B >= min_size
    confidence_B = np.bincount(bin_N, weights=confidence_N, minlength=bins)[some_B] / size_B[some_B]
    accuracy_B = np.bincount(bin_N, weights=correct_N.astype(np.float64), minlength=bins)[some_B] / size_B[some_B]
    return Reliability(
        confidence_B, accuracy_B, size_B[some_B] / len(bin_N), calibration_error(confidence_N, correct_N, bins=bins)
    )


@styled
def draw_reliability(exits: Mapping[str, Sequence[Reliability]]) -> "Figure":
    """Draw one panel per exit with one line per operating point."""
    number = len(next(iter(exits.values())))
    columns = min(PANELS_PER_ROW, number)
    rows = -(-number // columns)
    figure = new_figure(0.4 + 2.05 * rows if columns > 1 else 3.4)
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
    for k, axes in enumerate(panels):
        if k >= number:
            axes.set_visible(False)
            continue
        axes.plot([0, 1], [0, 1], color=MUTED, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
        for position, (point, qualities) in enumerate(exits.items()):
            one, style = qualities[k], series_style(position)
            label = point if k == 0 else None
            axes.plot(one.confidence_B, one.accuracy_B, color=style.colour, linestyle=style.line, label=label)
            area_B = 4 + MAX_MARKER_AREA * one.share_B
            axes.scatter(one.confidence_B, one.accuracy_B, s=area_B, color=style.colour, marker=style.marker, zorder=3)
        errors = " / ".join(f"{100 * qualities[k].error:.1f}" for qualities in exits.values())
        axes.set_title(f"exit {k + 1}: error {errors} %", loc="left")
        axes.set_xlim(-0.02, 1.04)
        axes.set_ylim(-0.04, 1.04)
        axes.set_aspect("equal")
    figure.supxlabel("mean confidence", fontsize=9)
    figure.supylabel("accuracy", fontsize=9)
    if len(exits) > 1:
        figure.legend(loc="outside upper center", ncols=2)
    return figure


def confidence_in_true_class(record: RunRecord) -> FigureOrReason:
    """Share of head and tail examples by the confidence in their true class, as in the paper's motivation."""
    name = "confidence-in-true-class"
    if record.table is None:
        return NoFigure(name, record.no_table)
    scale = loss_scale(final_recipe(record.recipe))
    confidence_N = true_class_confidence(record.table, scale=scale)
    is_head_N = head_classes(record.class_counts)[record.table.labels_N]
    halves = {"head": confidence_N[is_head_N], "tail": confidence_N[~is_head_N]}
    scaled = "" if scale == 1 else f" Logits: cosines times {scale:g}, as in the loss."
    return RunFigure(
        name,
        "Confidence in the true class",
        f"Probability of the true class at the last exit: at most {LOW:g} for {_share(halves['head'] <= LOW)} % of the "
        f"head examples, at least {HIGH:g} for {_share(halves['tail'] >= HIGH)} % of the tail examples. "
        f"{HALVES}{scaled} "
        f"{record.measured_on} ({', '.join(f'{half} {len(values):,}' for half, values in halves.items())}).",
        lambda: draw_confidence_in_true_class({half: share_by_bin(values) for half, values in halves.items()}),
    )


def true_class_confidence(table: ExitTable, *, scale: float) -> NDArray[np.float64]:
    """Return softmax(scale * logits)[label] at the last exit, shape (N,)."""
    confidence_N = np.empty(table.examples, dtype=np.float64)
    chunk = max(1, CHUNK_BYTES // (8 * table.classes))
    for start in range(0, table.examples, chunk):
        rows = slice(start, start + chunk)
        probability_BC, _ = probability_and_prediction(np.asarray(table.logits_NEC[rows, -1]), scale)
        confidence_N[rows] = np.take_along_axis(probability_BC, table.labels_N[rows, None], axis=1)[:, 0]
    return confidence_N


def share_by_bin(confidence_N: NDArray[np.float64]) -> tuple[float, ...] | None:
    """Return the share of the examples in each tenth of confidence; None if there are no examples.

    Bins are closed on the right, so that the first is "at most 0.1"; 0.9 belongs to the last, "at least 0.9".
    """
    if len(confidence_N) == 0:
        return None
    inner = np.arange(1, TRUE_CLASS_BINS) / TRUE_CLASS_BINS
    bin_N = np.where(confidence_N >= HIGH, TRUE_CLASS_BINS - 1, np.searchsorted(inner, confidence_N, side="left"))
    return tuple((np.bincount(bin_N, minlength=TRUE_CLASS_BINS) / len(confidence_N)).tolist())


@styled
def draw_confidence_in_true_class(shares: Mapping[str, Sequence[float] | None]) -> "Figure":
    """Draw two bars per bin, head and tail; shares are fractions of 1."""
    figure = new_figure(2.9)
    axes = figure.add_subplot()
    width = 0.42 / TRUE_CLASS_BINS
    for position, (half, share_B) in enumerate(shares.items()):
        if share_B is None:
            continue
        colour, hatch = _HALF_STYLES[half]
        left = np.arange(TRUE_CLASS_BINS) / TRUE_CLASS_BINS + (position + 0.5) * width + 0.08 / TRUE_CLASS_BINS
        heights = [100 * share for share in share_B]
        axes.bar(left, heights, width=width, color=colour, edgecolor=PAPER, hatch=hatch, label=half)
    axes.set_xticks(np.arange(TRUE_CLASS_BINS + 1) / TRUE_CLASS_BINS)
    axes.set_xlim(0, 1)
    axes.grid(visible=False, axis="x")
    axes.set_xlabel("confidence in the true class")
    axes.set_ylabel("examples of each half (%)")
    figure.legend(loc="outside upper center", ncols=2)
    return figure


def _share(chosen_N: NDArray[np.bool_]) -> str:
    return fmt.percent(float(chosen_N.mean()) if len(chosen_N) else None)
