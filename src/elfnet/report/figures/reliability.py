"""Reliability by exit: the share of right answers against the confidence they were given with."""

# Shapes: N examples, B bins of confidence

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from elfnet.evaluate.calibration_error import BINS, calibration_error
from elfnet.evaluate.replay import derive_for
from elfnet.exits.policy import Reading
from elfnet.report.figures.style import MUTED, in_house_style, look, new_figure
from elfnet.report.run_figure import FigureOrReason, NoFigure, RunFigure
from elfnet.report.run_record import RunRecord

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PANELS_A_ROW = 2
MOST_LINES = 2
FEWEST = 10
"""A share of fewer examples than this says nothing; such bins are not drawn."""
LARGEST_MARK = 110.0
"""Area in square points of the mark of a bin that holds everybody."""


@dataclass(frozen=True)
class Reliability:
    """One exit, taken by everybody; bins with too few examples are left out.

    Attributes:
        confidence_B: mean confidence of the bin's examples.
        accuracy_B: share of right answers among them.
        share_B: share of all examples that are in the bin.
        error: expected calibration error, a fraction of 1.
    """

    confidence_B: NDArray[np.float64]
    accuracy_B: NDArray[np.float64]
    share_B: NDArray[np.float64]
    error: float


def reliability_by_exit(record: RunRecord) -> FigureOrReason:
    name = "reliability"
    if record.table is None:
        return NoFigure(name, record.no_table)
    exits: dict[str, list[Reliability]] = {}
    # Points may differ in what logits are multiplied by before the softmax: as trained, and as calibrated. Each such
    # reading is a line of its own, under the name of its first point.
    seen: set[Reading] = set()
    for point in record.family.points:
        if point.policy.reading in seen or len(seen) == MOST_LINES:
            continue
        seen.add(point.policy.reading)
        derived = derive_for(record.table, point.policy)
        exits[point.name] = [
            reliability(derived.confidence_NE[:, k], derived.correct_NE[:, k]) for k in range(derived.table.exits)
        ]
    lines = "" if len(exits) == 1 else " Two lines: the points differ in the scale of the confidence."
    return RunFigure(
        name,
        "Is the confidence true?",
        f"Share of right answers against mean confidence in {BINS} equal bins (those with {FEWEST} examples or more), "
        f"every exit taken by everybody; the larger a mark, the more examples. On the dashed line confidence is true, "
        f"below it too high. Error: expected calibration error.{lines} {record.measured_on}.",
        lambda: draw_reliability(exits),
    )


def reliability(
    confidence_N: NDArray[np.float64], correct_N: NDArray[np.bool_], *, bins: int = BINS, fewest: int = FEWEST
) -> Reliability:
    """Bins as in `calibration_error`: equally wide, closed on the left, 1 in the last."""
    bin_N = np.searchsorted(np.linspace(0.0, 1.0, bins + 1)[1:-1], confidence_N, side="right")
    size_B = np.bincount(bin_N, minlength=bins)
    some_B = size_B >= fewest
    confidence_B = np.bincount(bin_N, weights=confidence_N, minlength=bins)[some_B] / size_B[some_B]
    accuracy_B = np.bincount(bin_N, weights=correct_N.astype(np.float64), minlength=bins)[some_B] / size_B[some_B]
    return Reliability(
        confidence_B, accuracy_B, size_B[some_B] / len(bin_N), calibration_error(confidence_N, correct_N, bins=bins)
    )


@in_house_style
def draw_reliability(exits: Mapping[str, Sequence[Reliability]]) -> "Figure":
    """A panel an exit, a line a point."""
    number = len(next(iter(exits.values())))
    columns = min(PANELS_A_ROW, number)
    rows = -(-number // columns)
    figure = new_figure(0.4 + 2.05 * rows if columns > 1 else 3.4)
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
    for k, axes in enumerate(panels):
        if k >= number:
            axes.set_visible(False)
            continue
        axes.plot([0, 1], [0, 1], color=MUTED, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
        for position, (point, qualities) in enumerate(exits.items()):
            one, style = qualities[k], look(position)
            label = point if k == 0 else None
            axes.plot(one.confidence_B, one.accuracy_B, color=style.colour, linestyle=style.line, label=label)
            area_B = 4 + LARGEST_MARK * one.share_B
            axes.scatter(one.confidence_B, one.accuracy_B, s=area_B, color=style.colour, marker=style.marker, zorder=3)
        errors = " / ".join(f"{100 * qualities[k].error:.1f}" for qualities in exits.values())
        axes.set_title(f"exit {k + 1}: error {errors} %", loc="left")
        axes.set_xlim(-0.02, 1.04)
        axes.set_ylim(-0.04, 1.04)
        axes.set_aspect("equal")
    figure.supxlabel("mean confidence", fontsize=9)
    figure.supylabel("share of right answers", fontsize=9)
    if len(exits) > 1:
        figure.legend(loc="outside upper center", ncols=2)
    return figure
