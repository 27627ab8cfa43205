"""Accuracy against cost, who leaves where, and what single examples cost, on the test split."""

from elfnet.report.figure_block import figure_blocks
from elfnet.report.figures.exits import exit_shares_at_points
from elfnet.report.figures.trade_off import accuracy_against_cost, cost_histogram
from elfnet.report.markup import Markup, element, joined
from elfnet.report.record import RunRecord


def trade_off(record: RunRecord, key: str) -> Markup:
    """Nothing to draw for a plain network."""
    if record.plain:
        return Markup("")
    figures = figure_blocks(key, accuracy_against_cost(record), cost_histogram(record), exit_shares_at_points(record))
    return joined(element("h3", "Accuracy against cost"), figures)
