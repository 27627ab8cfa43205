"""Where training examples leave, epoch by epoch."""

# Shapes: S epochs, E exits

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from elfnet.report.epoch_log import reweighting_start
from elfnet.report.figures.of_training import NO_LOG, dashed_line, trained_on
from elfnet.report.figures.style import PAPER, in_house_style, look, mark_switch, new_figure, whole_epochs
from elfnet.report.run_figure import FigureOrReason, NoFigure, RunFigure
from elfnet.report.run_record import RunRecord

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def exit_shares_over_epochs(record: RunRecord) -> FigureOrReason:
    name = "exit-shares-over-training"
    if not record.epochs:
        return NoFigure(name, NO_LOG)
    epochs = record.epochs
    return RunFigure(
        name,
        "Who leaves where in training",
        f"An example leaves where its label is predicted with enough confidence.{dashed_line(record)} "
        f"{trained_on(record)}",
        lambda: draw_exit_shares_over_epochs(
            [one.epoch for one in epochs],
            [one.exit_share for one in epochs],
            reweighting_from=reweighting_start(epochs),
        ),
    )


@in_house_style
def draw_exit_shares_over_epochs(
    epoch_S: Sequence[int], share_SE: Sequence[Sequence[float]], *, reweighting_from: int | None = None
) -> "Figure":
    """Stacked shares, exit 1 at the bottom; one step an epoch."""
    figure = new_figure(2.9)
    axes = figure.add_subplot()
    edges = np.append(np.asarray(epoch_S, dtype=np.float64) - 0.5, epoch_S[-1] + 0.5)
    share = 100 * np.asarray(share_SE, dtype=np.float64)
    top = np.cumsum(np.vstack([share, share[-1:]]), axis=1)
    bottom = np.hstack([np.zeros((len(top), 1)), top[:, :-1]])
    handles = [
        axes.fill_between(
            edges,
            bottom[:, k],
            top[:, k],
            step="post",
            facecolor=look(k).colour,
            edgecolor=PAPER,
            hatch=look(k).hatch,
            linewidth=0.6,
            label=f"exit {k + 1}",
        )
        for k in range(share.shape[1])
    ]
    mark_switch(axes, reweighting_from, label=False)
    whole_epochs(axes)
    axes.set_xlim(edges[0], edges[-1])
    axes.set_ylim(0, 100)
    axes.set_xlabel("epoch (from 0)")
    axes.set_ylabel("training examples leaving (%)")
    figure.legend(handles=handles, loc="outside upper center", ncols=min(5, len(handles)))
    return figure
