"""The exits one by one: how good each is on its own, and who left there in training with which loss."""

from elfnet.data.groups import GROUP_NAMES
from elfnet.report import formatting as say
from elfnet.report.figure_block import figure_blocks
from elfnet.report.figures.exits import reliability_by_exit
from elfnet.report.figures.training import (
    exit_shares_over_epochs,
    loss_by_exit,
    loss_by_exit_over_epochs,
    loss_shares_over_epochs,
)
from elfnet.report.html_table import Cell, Heading, html_table
from elfnet.report.markup import Markup, element, joined
from elfnet.report.record import RunRecord


def exits(record: RunRecord, key: str) -> Markup:
    """The table, and the figures that a network with one exit or with several has."""
    return joined(element("h3", "The exits"), _table(record), _figures(record, key))


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
    if record.plain:
        return figure_blocks(key, reliability_by_exit(record))
    return figure_blocks(
        key,
        loss_by_exit(record),
        loss_by_exit_over_epochs(record),
        exit_shares_over_epochs(record),
        loss_shares_over_epochs(record),
        reliability_by_exit(record),
    )
