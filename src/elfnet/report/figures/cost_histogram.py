"""What single examples cost: with early exits the mean hides a few prices that are far apart."""

# Shapes: N examples, V different costs

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from elfnet.calibrate.family import MULTIPLY_ADDS
from elfnet.report.figures.style import BLUE, INK, MUTED, PAPER, POINT_MARKERS, in_house_style, new_figure
from elfnet.report.run_figure import FigureOrReason, NoFigure, RunFigure
from elfnet.report.run_record import RunRecord

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def cost_histogram(record: RunRecord) -> FigureOrReason:
    name = "cost-histogram"
    if record.plain:
        return NoFigure(name, f"{record.name} is a plain network: every example costs the same")
    if record.table is None:
        return NoFigure(name, record.no_table)
    costs = {point: share_by_cost(record.replayed(point).cost_N) for point in POINT_MARKERS}
    return RunFigure(
        name,
        "What single examples cost",
        f"Share of the examples by cost; every exit has its price. Solid line: the mean; dashed: the plain backbone. "
        f"{record.measured_on}.",
        lambda: draw_cost_histogram(costs, unit=record.short_cost_unit),
    )


def share_by_cost(cost_N: NDArray[np.float64]) -> dict[float, float]:
    """Share of the examples by what they cost, cheapest first."""
    cost_V, count_V = np.unique(cost_N, return_counts=True)
    return {float(cost): float(count / len(cost_N)) for cost, count in zip(cost_V, count_V, strict=True)}


@in_house_style
def draw_cost_histogram(costs: Mapping[str, Mapping[float, float]], *, unit: str = MULTIPLY_ADDS) -> "Figure":
    """A panel a point, a bar a price; shares as fractions of 1."""
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
