"""Figures of the training log: loss, learning rate, accuracy and exit shares per epoch."""

# Shapes: S epochs, E exits

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from elfnet.report.figures.base import (
    MUTED,
    PAPER,
    FigureOrReason,
    NoFigure,
    RunFigure,
    SeriesStyle,
    integer_epochs,
    mark_reweighting,
    marker_step,
    new_figure,
    plain_log_ticks,
    series_style,
    styled,
)
from elfnet.report.record import HALVES, RunRecord
from elfnet.report.summary import increasing_loss_verdict
from elfnet.run.log import reweighting_start

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NO_LOG = "the run directory has no training log"


def _training_split(record: RunRecord) -> str:
    return f"Training split, augmented, n = {record.info.data.train:,} per epoch."


def _dashed_line(record: RunRecord) -> str:
    """Explain the dashed line, with a leading space; empty if there is none."""
    switch = reweighting_start(record.epochs)
    return "" if switch is None else f" Dashed line: re-weighting from epoch {switch}."


def _plot_epochs(
    axes: Any, epochs: Sequence[int], values: Sequence[float], style: SeriesStyle, *, label: str | None = None
) -> None:
    axes.plot(
        epochs,
        values,
        color=style.colour,
        linestyle=style.line,
        marker=style.marker,
        markersize=3.5,
        markevery=marker_step(len(epochs)),
        label=label,
    )


def training_curves(record: RunRecord) -> FigureOrReason:
    """Loss, learning rate and accuracy on the calibration split per epoch."""
    name = "training-curves"
    if not record.epochs:
        return NoFigure(name, NO_LOG)
    epochs, data = record.epochs, record.info.data
    accuracy = f"balanced accuracy at full depth on the calibration split (n = {data.calibration:,})"
    if not data.calibration:
        accuracy = "no accuracy, because there is no calibration split"
    return RunFigure(
        name,
        "Training curves",
        f"Loss on the training split (n = {data.train:,}), learning rate at the end of each epoch, and {accuracy}.",
        lambda: draw_training_curves(
            [one.epoch for one in epochs],
            loss_S=[one.loss for one in epochs],
            learning_rate_S=[one.learning_rate for one in epochs],
            accuracy_S=[one.calibration_balanced_accuracy for one in epochs],
            reweighting_from=reweighting_start(epochs),
        ),
    )


@styled
def draw_training_curves(
    epoch_S: Sequence[int],
    *,
    loss_S: Sequence[float],
    learning_rate_S: Sequence[float],
    accuracy_S: Sequence[float | None],
    reweighting_from: int | None = None,
) -> "Figure":
    """Draw three panels; accuracies are fractions of 1, None for epochs that were not evaluated."""
    figure = new_figure(4.9)
    top, middle, bottom = figure.subplots(3, 1, sharex=True)
    _plot_epochs(top, epoch_S, loss_S, series_style(0))
    top.set_ylabel("training loss")
    _plot_epochs(middle, epoch_S, learning_rate_S, series_style(1))
    middle.set_ylabel("learning rate (log)")
    if min(learning_rate_S) > 0:
        middle.set_yscale("log")
        plain_log_ticks(middle.yaxis)
    known = [(epoch, 100 * value) for epoch, value in zip(epoch_S, accuracy_S, strict=True) if value is not None]
    _plot_epochs(bottom, [epoch for epoch, _ in known], [value for _, value in known], series_style(2))
    bottom.set_ylabel("balanced accuracy (%)")
    bottom.set_xlabel("epoch (from 0)")
    for axes in (top, middle, bottom):
        mark_reweighting(axes, reweighting_from, label=axes is top)
    integer_epochs(bottom)
    figure.align_ylabels()
    return figure


def loss_by_exit(record: RunRecord) -> FigureOrReason:
    """Mean loss of the training examples that take each exit, in the last epoch."""
    name = "loss-by-exit"
    if not record.epochs:
        return NoFigure(name, NO_LOG)
    last = record.epochs[-1]
    return RunFigure(
        name,
        f"Loss by exit, epoch {last.epoch}",
        f"Mean over the examples that take an exit of their loss, summed over the exits they visited. "
        f"{_training_split(record)} {increasing_loss_verdict(record)}".rstrip(),
        lambda: draw_loss_by_exit(last.loss_by_exit),
    )


@styled
def draw_loss_by_exit(loss_E: Sequence[float | None]) -> "Figure":
    """Draw one bar per exit; None for an exit that no example takes."""
    figure = new_figure(2.7)
    axes = figure.add_subplot()
    highest = max((loss for loss in loss_E if loss is not None), default=1.0)
    for k, loss in enumerate(loss_E):
        if loss is None:
            axes.annotate(
                "no\nexamples",
                (k, 0),
                xytext=(0, 4),
                textcoords="offset points",
                ha="center",
                fontsize=8,
                color=MUTED,
            )
            continue
        axes.bar(k, loss, width=0.62, color=series_style(k).colour, edgecolor=PAPER, hatch=series_style(k).hatch)
        axes.annotate(f"{loss:.3g}", (k, loss), xytext=(0, 2), textcoords="offset points", ha="center", fontsize=8.5)
    axes.set_xticks(range(len(loss_E)), [f"exit {k + 1}" for k in range(len(loss_E))])
    axes.set_xlim(-0.6, len(loss_E) - 0.4)
    axes.set_ylim(0, highest * 1.14 or 1.0)
    axes.grid(visible=False, axis="x")
    axes.tick_params(axis="x", length=0)
    axes.set_ylabel("mean loss")
    return figure


def loss_by_exit_over_epochs(record: RunRecord) -> FigureOrReason:
    """Mean loss of the training examples that take each exit, per epoch."""
    name = "loss-by-exit-over-training"
    if not record.epochs:
        return NoFigure(name, NO_LOG)
    epochs = record.epochs
    return RunFigure(
        name,
        "Loss by exit over training",
        f"Lines are interrupted where no example takes the exit.{_dashed_line(record)} {_training_split(record)}",
        lambda: draw_loss_by_exit_over_epochs(
            [one.epoch for one in epochs],
            [one.loss_by_exit for one in epochs],
            reweighting_from=reweighting_start(epochs),
        ),
    )


@styled
def draw_loss_by_exit_over_epochs(
    epoch_S: Sequence[int], loss_SE: Sequence[Sequence[float | None]], *, reweighting_from: int | None = None
) -> "Figure":
    """Draw one line per exit, interrupted where no example takes it."""
    figure = new_figure(2.9)
    axes = figure.add_subplot()
    values = np.array([[np.nan if loss is None else loss for loss in row] for row in loss_SE], dtype=np.float64)
    for k in range(values.shape[1]):
        if not np.isnan(values[:, k]).all():
            _plot_epochs(axes, epoch_S, values[:, k].tolist(), series_style(k), label=f"exit {k + 1}")
    # Losses span orders of magnitude, but a loss of exactly 0 has no logarithm.
    if np.nanmin(values, initial=np.inf) > 0 and np.isfinite(values).any():
        axes.set_yscale("log")
        plain_log_ticks(axes.yaxis)
        axes.set_ylabel("mean loss (log scale)")
    else:
        axes.set_ylabel("mean loss")
    mark_reweighting(axes, reweighting_from, label=False)
    integer_epochs(axes)
    axes.set_xlabel("epoch (from 0)")
    handles, _ = axes.get_legend_handles_labels()
    if handles:
        figure.legend(handles=handles, loc="outside upper center", ncols=min(5, len(handles)))
    return figure


def exit_shares_over_epochs(record: RunRecord) -> FigureOrReason:
    """Share of the training examples that take each exit, per epoch."""
    name = "exit-shares-over-training"
    if not record.epochs:
        return NoFigure(name, NO_LOG)
    epochs = record.epochs
    return RunFigure(
        name,
        "Exit shares over training",
        f"An example exits where its label is predicted with enough confidence.{_dashed_line(record)} "
        f"{_training_split(record)}",
        lambda: draw_exit_shares_over_epochs(
            [one.epoch for one in epochs],
            [one.exit_share for one in epochs],
            reweighting_from=reweighting_start(epochs),
        ),
    )


@styled
def draw_exit_shares_over_epochs(
    epoch_S: Sequence[int], share_SE: Sequence[Sequence[float]], *, reweighting_from: int | None = None
) -> "Figure":
    """Draw stacked shares, exit 1 at the bottom, one step per epoch."""
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
            facecolor=series_style(k).colour,
            edgecolor=PAPER,
            hatch=series_style(k).hatch,
            linewidth=0.6,
            label=f"exit {k + 1}",
        )
        for k in range(share.shape[1])
    ]
    mark_reweighting(axes, reweighting_from, label=False)
    integer_epochs(axes)
    axes.set_xlim(edges[0], edges[-1])
    axes.set_ylim(0, 100)
    axes.set_xlabel("epoch (from 0)")
    axes.set_ylabel("training examples (%)")
    figure.legend(handles=handles, loc="outside upper center", ncols=min(5, len(handles)))
    return figure


def loss_shares_over_epochs(record: RunRecord) -> FigureOrReason:
    """Shares of the training loss from low-confidence head and high-confidence tail examples, per epoch."""
    name = "loss-shares-over-training"
    if not record.epochs:
        return NoFigure(name, NO_LOG)
    epochs = record.epochs
    return RunFigure(
        name,
        "Share of the loss from hard head and easy tail examples",
        f"{HALVES} Low confidence: at most 0.1 for the true class; high: at least 0.9.{_dashed_line(record)} "
        f"{_training_split(record)}",
        lambda: draw_loss_shares_over_epochs(
            [one.epoch for one in epochs],
            low_confidence_head_S=[one.low_confidence_head_loss_share for one in epochs],
            high_confidence_tail_S=[one.high_confidence_tail_loss_share for one in epochs],
            reweighting_from=reweighting_start(epochs),
        ),
    )


@styled
def draw_loss_shares_over_epochs(
    epoch_S: Sequence[int],
    *,
    low_confidence_head_S: Sequence[float | None],
    high_confidence_tail_S: Sequence[float | None],
    reweighting_from: int | None = None,
) -> "Figure":
    """Draw two lines of shares, which are fractions of 1; None interrupts a line."""
    figure = new_figure(2.9)
    axes = figure.add_subplot()
    series = {"low-confidence head": low_confidence_head_S, "high-confidence tail": high_confidence_tail_S}
    for position, (label, shares) in enumerate(series.items()):
        values = [np.nan if share is None else 100 * share for share in shares]
        _plot_epochs(axes, epoch_S, values, series_style(position), label=label)
    mark_reweighting(axes, reweighting_from, label=False)
    integer_epochs(axes)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("epoch (from 0)")
    axes.set_ylabel("share of the loss (%)")
    figure.legend(loc="outside upper center", ncols=2)
    return figure
