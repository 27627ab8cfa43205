"""Loss, learning rate and accuracy on the calibration split over a run."""

# Shapes: S epochs

from collections.abc import Sequence
from typing import TYPE_CHECKING

from elfnet.report.epoch_log import reweighting_start
from elfnet.report.figures.of_training import NO_LOG
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


def training_curves(record: RunRecord) -> FigureOrReason:
    name = "training-curves"
    if not record.epochs:
        return NoFigure(name, NO_LOG)
    epochs, data = record.epochs, record.info["data"]
    return RunFigure(
        name,
        "Training curves",
        f"Loss on the training split (n = {data['train']:,}), learning rate at the end of each epoch, and balanced "
        f"accuracy at full depth on the calibration split (n = {data['calibration']:,}).",
        lambda: draw_training_curves(
            [one.epoch for one in epochs],
            loss_S=[one.loss for one in epochs],
            learning_rate_S=[one.learning_rate for one in epochs],
            accuracy_S=[one.calibration_balanced_accuracy for one in epochs],
            reweighting_from=reweighting_start(epochs),
        ),
    )


@in_house_style
def draw_training_curves(
    epoch_S: Sequence[int],
    *,
    loss_S: Sequence[float],
    learning_rate_S: Sequence[float],
    accuracy_S: Sequence[float | None],
    reweighting_from: int | None = None,
) -> "Figure":
    """Three panels over the same epochs; accuracies are fractions of 1, None where an epoch was not evaluated."""
    figure = new_figure(4.9)
    top, middle, bottom = figure.subplots(3, 1, sharex=True)
    every = mark_every(len(epoch_S))

    def line(axes: "object", epochs: Sequence[int], values: Sequence[float], position: int) -> None:
        style = look(position)
        axes.plot(  # type: ignore[attr-defined]
            epochs,
            values,
            color=style.colour,
            linestyle=style.line,
            marker=style.marker,
            markersize=3.5,
            markevery=every,
        )

    line(top, epoch_S, loss_S, 0)
    top.set_ylabel("training loss")
    line(middle, epoch_S, learning_rate_S, 1)
    middle.set_ylabel("learning rate (log)")
    if min(learning_rate_S) > 0:
        middle.set_yscale("log")
        plain_numbers(middle.yaxis)
    known = [(epoch, 100 * value) for epoch, value in zip(epoch_S, accuracy_S, strict=True) if value is not None]
    line(bottom, [epoch for epoch, _ in known], [value for _, value in known], 2)
    bottom.set_ylabel("balanced accuracy (%)")
    bottom.set_xlabel("epoch (from 0)")
    for axes in (top, middle, bottom):
        mark_switch(axes, reweighting_from, label=axes is top)
    whole_epochs(bottom)
    figure.align_ylabels()
    return figure
