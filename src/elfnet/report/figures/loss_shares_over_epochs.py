"""How much of the training loss comes from two kinds of examples, epoch by epoch."""

# Shapes: S epochs

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from elfnet.report.epoch_log import reweighting_start
from elfnet.report.figures.of_training import NO_LOG, dashed_line, trained_on
from elfnet.report.figures.style import in_house_style, look, mark_every, mark_switch, new_figure, whole_epochs
from elfnet.report.head_and_tail import HALVES
from elfnet.report.run_figure import FigureOrReason, NoFigure, RunFigure
from elfnet.report.run_record import RunRecord

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def loss_shares_over_epochs(record: RunRecord) -> FigureOrReason:
    name = "loss-shares-over-training"
    if not record.epochs:
        return NoFigure(name, NO_LOG)
    epochs = record.epochs
    return RunFigure(
        name,
        "Where the loss comes from",
        f"{HALVES} Low confidence: at most 0.1 for the true class; high: at least 0.9.{dashed_line(record)} "
        f"{trained_on(record)}",
        lambda: draw_loss_shares_over_epochs(
            [one.epoch for one in epochs],
            low_confidence_head_S=[one.low_confidence_head_loss_share for one in epochs],
            high_confidence_tail_S=[one.high_confidence_tail_loss_share for one in epochs],
            reweighting_from=reweighting_start(epochs),
        ),
    )


@in_house_style
def draw_loss_shares_over_epochs(
    epoch_S: Sequence[int],
    *,
    low_confidence_head_S: Sequence[float | None],
    high_confidence_tail_S: Sequence[float | None],
    reweighting_from: int | None = None,
) -> "Figure":
    """Two lines of shares of the loss, given as fractions of 1; broken where a share is unknown."""
    figure = new_figure(2.9)
    axes = figure.add_subplot()
    series = {
        "low-confidence head": (low_confidence_head_S, look(0)),
        "high-confidence tail": (high_confidence_tail_S, look(1)),
    }
    for label, (shares, style) in series.items():
        axes.plot(
            epoch_S,
            [np.nan if share is None else 100 * share for share in shares],
            color=style.colour,
            linestyle=style.line,
            marker=style.marker,
            markersize=3.5,
            markevery=mark_every(len(epoch_S)),
            label=label,
        )
    mark_switch(axes, reweighting_from, label=False)
    whole_epochs(axes)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("epoch (from 0)")
    axes.set_ylabel("share of the loss (%)")
    figure.legend(loc="outside upper center", ncols=2)
    return figure
