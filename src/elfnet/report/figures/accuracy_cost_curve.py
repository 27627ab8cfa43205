"""Accuracy against cost: one line for every group of a run, or one for every run."""

# Shapes: P points of a curve

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from elfnet.report.figures.style import INK, MUTED, PAPER, POINT_MARKERS, Look, in_house_style, literal, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class CurveLine:
    """One line; of a single point, which is a plain network, only the marker is drawn.

    Attributes:
        label: as the legend names it.
        cost_P: mean multiply-adds relative to the plain backbone.
        accuracy_P: fractions of 1.
        marks: operating points by name, as (cost, accuracy).
    """

    label: str
    look: Look
    cost_P: Sequence[float]
    accuracy_P: Sequence[float]
    marks: Mapping[str, tuple[float, float]] = field(default_factory=dict)


@in_house_style
def draw_accuracy_cost_curve(lines: Sequence[CurveLine], *, of: str = "accuracy") -> "Figure":
    """Lines from left (everybody leaves at exit 1) to right (nobody leaves early), with the plain cost of 1 marked."""
    from matplotlib.lines import Line2D

    figure = new_figure(3.9)
    axes = figure.add_subplot()
    handles = []
    for line in lines:
        single = len(line.cost_P) == 1
        (handle,) = axes.plot(
            line.cost_P,
            [100 * accuracy for accuracy in line.accuracy_P],
            color=line.look.colour,
            linestyle="none" if single else line.look.line,
            # Hollow and on top: it hides none of the operating points that it may lie close to.
            marker=line.look.marker if single else "none",
            markersize=9,
            markerfacecolor="none",
            markeredgewidth=1.6,
            label=literal(line.label),
            zorder=11 if single else 2,
        )
        handles.append(handle)
        for name, (cost, accuracy) in line.marks.items():
            marker, size = POINT_MARKERS[name]
            axes.plot(
                [cost],
                [100 * accuracy],
                linestyle="none",
                marker=marker,
                markersize=size,
                color=line.look.colour,
                markeredgecolor=PAPER,
                markeredgewidth=0.8,
                # The smaller ones on top, so that two names of one point both show.
                zorder=10 - size / 10,
            )
    marked = [name for name in POINT_MARKERS if any(name in line.marks for line in lines)]
    handles += [
        Line2D([], [], linestyle="none", color=INK, marker=POINT_MARKERS[name][0], markersize=5.5, label=name)
        for name in marked
    ]
    axes.axvline(1.0, color=MUTED, linewidth=1.0, linestyle=(0, (4, 3)), zorder=1)
    axes.margins(x=0.06, y=0.08)
    axes.annotate(
        "plain backbone = 1",
        (1.0, 0.0),
        xycoords=("data", "axes fraction"),
        xytext=(3, 4),
        textcoords="offset points",
        rotation=90,
        va="bottom",
        fontsize=8,
        color=MUTED,
    )
    axes.set_xlabel("mean cost (multiply-adds relative to the plain backbone)")
    axes.set_ylabel(f"{of} (%)")
    columns = min(4, len(handles)) if max(len(line.label) for line in lines) <= 12 else 2
    figure.legend(handles=handles, loc="outside upper center", ncols=columns)
    return figure
