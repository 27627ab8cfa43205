"""The average loss of the training examples that leave at each exit, epoch by epoch."""

# Shapes: S epochs, E exits

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from elfnet.report.epoch_log import reweighting_start
from elfnet.report.figures.of_training import NO_LOG, dashed_line, trained_on
from elfnet.report.figures.style import (
    in_house_style,
    look,
    mark_every,
    mark_switch,
    new_figure,
    plain_numbers,
    whole_epochs,
)
from elfnet.report.run_figure import FigureOrReason, NoFigure, RunFigure
from elfnet.report.run_record import RunRecord

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def loss_by_exit_over_epochs(record: RunRecord) -> FigureOrReason:
    name = "loss-by-exit-over-training"
    if not record.epochs:
        return NoFigure(name, NO_LOG)
    epochs = record.epochs
    return RunFigure(
        name,
        "Loss by exit over training",
        f"A line breaks where nobody left.{dashed_line(record)} {trained_on(record)}",
        lambda: draw_loss_by_exit_over_epochs(
            [one.epoch for one in epochs],
            [one.loss_by_exit for one in epochs],
            reweighting_from=reweighting_start(epochs),
        ),
    )


@in_house_style
def draw_loss_by_exit_over_epochs(
    epoch_S: Sequence[int], loss_SE: Sequence[Sequence[float | None]], *, reweighting_from: int | None = None
) -> "Figure":
    """A line an exit, broken where nobody left there."""
    figure = new_figure(2.9)
    axes = figure.add_subplot()
    values = np.array([[np.nan if loss is None else loss for loss in row] for row in loss_SE], dtype=np.float64)
    for k in range(values.shape[1]):
        if np.isnan(values[:, k]).all():
            continue
        axes.plot(
            epoch_S,
            values[:, k],
            color=look(k).colour,
            linestyle=look(k).line,
            marker=look(k).marker,
            markersize=3.5,
            markevery=mark_every(len(epoch_S)),
            label=f"exit {k + 1}",
        )
    # Losses span orders of magnitude; a loss of exactly 0 has no logarithm.
    if np.nanmin(values, initial=np.inf) > 0 and np.isfinite(values).any():
        axes.set_yscale("log")
        plain_numbers(axes.yaxis)
        axes.set_ylabel("average loss (log scale)")
    else:
        axes.set_ylabel("average loss")
    mark_switch(axes, reweighting_from, label=False)
    whole_epochs(axes)
    axes.set_xlabel("epoch (from 0)")
    handles, _ = axes.get_legend_handles_labels()
    if handles:
        figure.legend(handles=handles, loc="outside upper center", ncols=min(5, len(handles)))
    return figure
