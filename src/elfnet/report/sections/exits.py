"""The exits one by one: how good each is on its own, and who left there in training with which loss."""

from elfnet.data.groups import GROUP_NAMES
from elfnet.report import number_text as say
from elfnet.report.epoch_log import reweighting_start
from elfnet.report.figure_block import figure_block, figure_grid
from elfnet.report.figures.exit_shares_over_epochs import draw_exit_shares_over_epochs
from elfnet.report.figures.loss_by_exit import draw_loss_by_exit
from elfnet.report.figures.loss_by_exit_over_epochs import draw_loss_by_exit_over_epochs
from elfnet.report.figures.loss_shares_over_epochs import draw_loss_shares_over_epochs
from elfnet.report.html_table import Cell, Heading, html_table
from elfnet.report.markup import Markup, element, joined
from elfnet.report.run_record import RunRecord
from elfnet.report.summary import increasing_loss_verdict


def exits(record: RunRecord, key: str) -> Markup:
    """The table for every network; the figures where there is more than one exit."""
    return joined(element("h3", "The exits"), _table(record), Markup("") if record.plain else _figures(record, key))


def _table(record: RunRecord) -> Markup:
    headings = [
        Heading("exit", numeric=False),
        Heading("cost"),
        *(Heading(name, "accuracy, %") for name in ("all", *GROUP_NAMES)),
        Heading("mean confidence, %"),
        Heading("calibration error, %"),
    ]
    rows = [
        [
            f"exit {quality.exit}",
            Cell(say.cost(quality.cost), quality.cost),
            Cell(say.percent(quality.accuracy), quality.accuracy),
            *(
                Cell(say.percent(quality.accuracy_by_group[group]), quality.accuracy_by_group[group])
                for group in GROUP_NAMES
            ),
            Cell(say.percent(quality.mean_confidence), quality.mean_confidence),
            Cell(say.percent(quality.calibration_error), quality.calibration_error),
        ]
        for quality in record.results.exits
    ]
    caption = (
        f"Each exit taken by everybody. {record.measured_on}. Calibration error: mean gap between confidence and "
        f"accuracy over 15 equal bins of confidence."
    )
    return html_table(caption, headings, rows)


def _figures(record: RunRecord, key: str) -> Markup:
    if not record.epochs:
        return element("p", "There is no training log in the run directory.", class_="note")
    epochs = [one.epoch for one in record.epochs]
    switch = reweighting_start(record.epochs)
    dashed = "" if switch is None else f" Dashed line: re-weighting from epoch {switch}."
    trained_on = f"Training split, augmented, n = {record.info['data']['train']:,} an epoch."
    summed = "Average over the examples leaving at an exit of their loss, summed over the exits they visited."
    return figure_grid(
        figure_block(
            draw_loss_by_exit(record.epochs[-1].loss_by_exit),
            f"{key}-loss-last",
            f"Loss by exit, epoch {epochs[-1]}",
            f"{summed} {trained_on} {increasing_loss_verdict(record)}",
        ),
        figure_block(
            draw_loss_by_exit_over_epochs(epochs, [one.loss_by_exit for one in record.epochs], reweighting_from=switch),
            f"{key}-loss-epochs",
            "Loss by exit over training",
            f"A line breaks where nobody left.{dashed} {trained_on}",
        ),
        figure_block(
            draw_exit_shares_over_epochs(epochs, [one.exit_share for one in record.epochs], reweighting_from=switch),
            f"{key}-train-shares",
            "Who leaves where in training",
            f"An example leaves where its label is predicted with enough confidence.{dashed} {trained_on}",
        ),
        figure_block(
            draw_loss_shares_over_epochs(
                epochs,
                low_confidence_head_S=[one.low_confidence_head_loss_share for one in record.epochs],
                high_confidence_tail_S=[one.high_confidence_tail_loss_share for one in record.epochs],
                reweighting_from=switch,
            ),
            f"{key}-loss-shares",
            "Where the loss comes from",
            f"Head: the more frequent half of the classes. Low confidence: at most 0.1 for the true class; high: at "
            f"least 0.9.{dashed} {trained_on}",
        ),
    )
