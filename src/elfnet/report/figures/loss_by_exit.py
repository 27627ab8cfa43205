"""The average loss of the training examples that leave at each exit, in one epoch."""

# Shapes: E exits

from collections.abc import Sequence
from typing import TYPE_CHECKING

from elfnet.report.figures.of_training import NO_LOG, SUMMED, trained_on
from elfnet.report.figures.style import MUTED, PAPER, in_house_style, look, new_figure
from elfnet.report.run_figure import FigureOrReason, NoFigure, RunFigure
from elfnet.report.run_record import RunRecord
from elfnet.report.summary import increasing_loss_verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def loss_by_exit(record: RunRecord) -> FigureOrReason:
    """The last epoch, with whether the loss grows from exit to exit."""
    name = "loss-by-exit"
    if not record.epochs:
        return NoFigure(name, NO_LOG)
    last = record.epochs[-1]
    return RunFigure(
        name,
        f"Loss by exit, epoch {last.epoch}",
        f"{SUMMED} {trained_on(record)} {increasing_loss_verdict(record)}".rstrip(),
        lambda: draw_loss_by_exit(last.loss_by_exit),
    )


@in_house_style
def draw_loss_by_exit(loss_E: Sequence[float | None]) -> "Figure":
    """A bar an exit; where nobody left there is no bar, and the figure says so."""
    figure = new_figure(2.7)
    axes = figure.add_subplot()
    highest = max((loss for loss in loss_E if loss is not None), default=1.0)
    for k, loss in enumerate(loss_E):
        if loss is None:
            axes.annotate(
                "nobody\nleft here",
                (k, 0),
                xytext=(0, 4),
                textcoords="offset points",
                ha="center",
                fontsize=8,
                color=MUTED,
            )
            continue
        axes.bar(k, loss, width=0.62, color=look(k).colour, edgecolor=PAPER, hatch=look(k).hatch)
        axes.annotate(f"{loss:.3g}", (k, loss), xytext=(0, 2), textcoords="offset points", ha="center", fontsize=8.5)
    axes.set_xticks(range(len(loss_E)), [f"exit {k + 1}" for k in range(len(loss_E))])
    axes.set_xlim(-0.6, len(loss_E) - 0.4)
    axes.set_ylim(0, highest * 1.14 or 1.0)
    axes.grid(visible=False, axis="x")
    axes.tick_params(axis="x", length=0)
    axes.set_ylabel("average loss")
    return figure
