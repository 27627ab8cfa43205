"""Where examples leave at each operating point, for all of them and by frequency group."""

# Shapes: E exits

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from elfnet.data.groups import GROUP_NAMES
from elfnet.report.figures.style import MUTED, PAPER, in_house_style, literal, look, new_figure
from elfnet.report.run_figure import FigureOrReason, NoFigure, RunFigure
from elfnet.report.run_record import RunRecord

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PANELS_A_ROW = 2
BASELINES = ("line search", "geometric")
MOST_POINTS = 14
"""More bars than this would not be read; then the chosen points stay, and others at equal steps of cost."""


def exit_shares_at_points(record: RunRecord) -> FigureOrReason:
    """Every frequency group, at every operating point or at a readable number of them."""
    name = "exit-shares"
    if record.plain:
        return NoFigure(name, f"{record.name} is a plain network: everybody leaves at its one exit")
    points = readable_points(record)
    shares: dict[str, list[Sequence[float] | None]] = {
        group: [
            record.at(point).exit_share if group == "all" else record.at(point).exit_share_by_group[group]
            for point in points
        ]
        for group in ("all", *GROUP_NAMES)
    }
    shares = {group: rows for group, rows in shares.items() if any(row is not None for row in rows)}
    number = len(_own_points(record))
    some = "" if len(points) == number else f" {len(points)} of {number} points."
    return RunFigure(
        name,
        "Who leaves where",
        f"Share of the examples leaving at each exit, by operating point (cheapest on top) and frequency group.{some} "
        f"{record.measured_on}.",
        lambda: draw_exit_shares_at_points(list(points.values()), shares),
    )


def readable_points(record: RunRecord) -> dict[str, str]:
    """Points by rising cost, each once and under all names it was chosen for; few enough to be told apart."""
    chosen: dict[str, list[str]] = {}
    for point in record.family.points:
        if point.same_as is not None:
            chosen.setdefault(point.same_as, []).append(point.name)
    own = sorted(_own_points(record), key=lambda name: record.at(name).mean_cost)
    kept = {name for name in own if name in chosen or name == "full"}
    others = [name for name in own if name not in kept and name in _worth_showing(record)]
    room = MOST_POINTS - len(kept)
    if len(others) > room:
        others = [others[step] for step in np.linspace(0, len(others) - 1, max(room, 0)).round().astype(np.int64)]
    kept.update(others)
    return {name: ", ".join([name, *chosen.get(name, [])]) for name in own if name in kept}


def _worth_showing(record: RunRecord) -> set[str]:
    """Points of the rules that are there to be compared with give way to those one would use."""
    used = {point.name for point in record.family.points if point.rule not in BASELINES}
    return used if used > {"full"} else set(record.family.names())


def _own_points(record: RunRecord) -> list[str]:
    return [point.name for point in record.family.points if point.same_as is None]


@in_house_style
def draw_exit_shares_at_points(
    points: Sequence[str], shares: Mapping[str, Sequence[Sequence[float] | None]]
) -> "Figure":
    """A panel a group, a bar a point.

    Args:
        points: names of the operating points, first on top.
        shares: by the name of the group, one row of E shares for each point; None where the group is empty.
    """
    rows = -(-len(shares) // PANELS_A_ROW)
    figure = new_figure(0.7 + rows * (0.45 + 0.155 * len(points)))
    panels = figure.subplots(rows, PANELS_A_ROW, sharex=True, sharey=True, squeeze=False).ravel()
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
                color=look(k).colour,
                edgecolor=PAPER,
                linewidth=0.5,
                hatch=look(k).hatch,
                label=f"exit {k + 1}",
            )
            left += share_PE[:, k]
    for axes in panels[len(shares) :]:
        axes.set_visible(False)
    panels[0].set_yticks(range(len(points)), [literal(point, 28) for point in points])
    panels[0].set_ylim(len(points) - 0.45, -0.55)
    panels[0].set_xlim(0, 100)
    for axes in panels[max(0, len(shares) - PANELS_A_ROW) : len(shares)]:  # the lowest of each column
        axes.tick_params(labelbottom=True)
        axes.set_xlabel("leaving (%)")
    figure.legend(handles=list(handles.values()), loc="outside upper center", ncols=min(5, len(handles)))
    return figure
