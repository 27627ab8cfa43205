"""The classes: how many training images each has, and how well it is recognised."""

import numpy as np

from elfnet.data.groups import GROUP_NAMES
from elfnet.report import formatting as say
from elfnet.report.figure_block import figure_blocks
from elfnet.report.figures.classes import accuracy_by_class, class_distribution
from elfnet.report.figures.exits import confidence_in_true_class
from elfnet.report.html_table import Cell, Heading, html_table
from elfnet.report.markup import Markup, element, joined
from elfnet.report.record import RunRecord

MOST_ROWS = 600
"""Above this the table shows the most frequent and the rarest classes: half of this each."""
MOST_ROWS_OPEN = 30


def classes(record: RunRecord, key: str) -> Markup:
    """The figures, and the table beside them."""
    table = _table(record)
    number = len(record.info.class_names)
    if number > MOST_ROWS_OPEN:
        which = f"all {number:,} classes" if number <= MOST_ROWS else f"{MOST_ROWS:,} of {number:,} classes"
        table = element("details", element("summary", f"Table of {which}"), table)
    figures = figure_blocks(
        key, class_distribution(record), accuracy_by_class(record), confidence_in_true_class(record), table
    )
    return joined(element("h3", "Classes"), figures)


def _table(record: RunRecord) -> Markup:
    points = ("full",) if record.plain else ("full", "accurate", "economic")
    headings = [
        Heading("class", numeric=False),
        Heading("training images"),
        Heading("group", numeric=False),
        *(Heading(name, "accuracy, %") for name in points),
    ]
    order = np.argsort(-record.info.class_counts_C, kind="stable").tolist()
    left_out = max(0, len(order) - MOST_ROWS)
    if left_out:
        order = order[: MOST_ROWS // 2] + order[-MOST_ROWS // 2 :]
    group_of_class_C = record.group_of_class
    rows = []
    for c in order:
        accuracies = [record.at(name).accuracy_by_class[c] for name in points]
        rows.append(
            [
                record.info.class_names[c],
                Cell(say.count(int(record.info.class_counts_C[c])), int(record.info.class_counts_C[c])),
                Cell(GROUP_NAMES[group_of_class_C[c]], int(group_of_class_C[c])),
                *(Cell(say.percent(accuracy), accuracy) for accuracy in accuracies),
            ]
        )
    omission = (
        f" {left_out:,} classes between the most frequent and the rarest are left out; metrics.json has all."
        if left_out
        else ""
    )
    caption = f"Accuracy by class, most frequent first. {record.measured_on}. A dash: no examples.{omission}"
    return html_table(caption, headings, rows, sortable=True)
