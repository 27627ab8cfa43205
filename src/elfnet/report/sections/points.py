"""Operating points, exits and classes of one run on the test split: tables, and the figures beside them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from elfnet.data.long_tail import GROUP_NAMES
from elfnet.report import formatting as fmt
from elfnet.report.figures.classes import accuracy_by_class, class_distribution
from elfnet.report.figures.exits import confidence_in_true_class, reliability_by_exit
from elfnet.report.figures.training import (
    exit_shares_over_epochs,
    loss_by_exit,
    loss_by_exit_over_epochs,
    loss_shares_over_epochs,
)
from elfnet.report.html import Cell, FigureGrid, Heading, Table, cost_cell, percent_cell
from elfnet.report.record import CHOSEN_POINTS, RunRecord
from elfnet.report.svg import figure_grid
from elfnet.run.results import same_points

PROMISED = ("loss", "groups", "epsilon", "delta", "method", "n_certified", "empirical_risk")
"""What the page shows of a point under risk control: the bounded loss, epsilon, delta and the number of examples."""
MAX_POINTS_IN_ONE_TABLE = 16
"""With more points than this, each rule has a table of its own, folded away."""
MAX_CLASS_ROWS = 600
"""With more classes than this, the table shows the most frequent and the rarest: half of this each."""
MAX_CLASS_ROWS_UNFOLDED = 30


@dataclass(frozen=True)
class OperatingPoints:
    """The section about operating points.

    Attributes:
        table: all points, or the chosen ones if there are many.
        others: number of points that are not in `table`.
        by_rule: one folded table of the other points per rule that found their thresholds.
        notes: what calibration states about its choices, and the guarantees of points under risk control.
    """

    table: Table
    others: int = 0
    by_rule: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()


def operating_points(record: RunRecord) -> OperatingPoints:
    """Return accuracy by group, cost and exit shares of each operating point."""
    family = record.family
    units = " ".join(note for note in (record.cost_note, record.time_note, record.mix_note) if note)
    caption = f"{record.measured_on}. {units} Thresholds chosen on the {family.chosen_on}. A dash means no examples."
    if record.plain:
        return OperatingPoints(_points_table(record, ["full"], caption))
    names, notes = family.names(), _notes(record)
    if len(names) <= MAX_POINTS_IN_ONE_TABLE:
        return OperatingPoints(_points_table(record, names, caption), notes=notes)
    chosen = _chosen(record)
    by_rule = tuple(
        _points_table(
            record,
            members,
            f"Rule: {rule}. {record.measured_on}.",
            folded=f"{rule.capitalize()}: {len(members)} {'point' if len(members) == 1 else 'points'}",
        )
        for rule, members in points_by_rule(record).items()
    )
    others = sum(len(table.rows) for table in by_rule)
    return OperatingPoints(_points_table(record, chosen, caption), others, by_rule, notes)


def _chosen(record: RunRecord) -> list[str]:
    """Return the points of the main table: those a user would choose, then `accurate` and `economic` if they differ."""
    leading = list(record.leading_points())
    others = [name for name in CHOSEN_POINTS if name not in leading and record.family.point(name).same_as != "full"]
    return leading + others


def points_by_rule(record: RunRecord) -> dict[str, list[str]]:
    """Return the names of the points that are not in the main table, by the rule that found their thresholds."""
    rules: dict[str, list[str]] = {}
    chosen = (*_chosen(record), *CHOSEN_POINTS)
    for point in record.family.points:
        if point.name not in chosen:
            rules.setdefault(point.rule, []).append(point.name)
    return rules


def _notes(record: RunRecord) -> tuple[str, ...]:
    notes = list(record.family.notes)
    for point in record.family.points:
        if point.promise is not None:
            facts = {key: point.promise[key] for key in PROMISED if key in point.promise}
            notes.append(f"{point.name}: " + ", ".join(f"{key.replace('_', ' ')} {facts[key]}" for key in facts))
    return tuple(notes)


def _points_table(record: RunRecord, names: Sequence[str], caption: str, *, folded: str = "") -> Table:
    headings = [
        Heading("point", numeric=False),
        *(Heading(name, "accuracy, %") for name in ("all", *GROUP_NAMES, "balanced")),
        Heading("mean", "cost"),
        Heading("worst", "cost"),
        *([Heading("ms per image")] if record.times else []),
        *(Heading(f"{k + 1}", "share of examples at exit, %") for k in range(record.exits)),
    ]
    some_chosen = len(names) > len(CHOSEN_POINTS)
    same = same_points({name: record.results.points[name] for name in names})
    return Table(
        headings=headings,
        rows=[_points_row(record, name, others) for name, others in same.items()],
        caption=caption,
        sortable=len(same) > 1,
        emphasised=frozenset(i for i, name in enumerate(same) if some_chosen and name in CHOSEN_POINTS),
        folded=folded,
    )


def _points_row(record: RunRecord, name: str, same: Sequence[str]) -> list[Cell | str]:
    """The row of a point, under the names of all points that do the same."""
    point = record.at(name)
    accuracies = [point.accuracy, *(point.accuracy_by_group[group] for group in GROUP_NAMES), point.balanced_accuracy]
    return [
        ", ".join(map(record.point_label, same)),
        *(percent_cell(accuracy) for accuracy in accuracies),
        cost_cell(point.mean_cost),
        cost_cell(point.worst_cost),
        *([Cell(fmt.milliseconds(record.milliseconds(name)), record.milliseconds(name))] if record.times else []),
        *(percent_cell(share) for share in point.exit_share),
    ]


def exit_table(record: RunRecord) -> Table:
    """Return accuracy and calibration of each exit if all examples take it."""
    headings = [
        Heading("exit", numeric=False),
        Heading("cost"),
        *(Heading(name, "accuracy, %") for name in ("all", *GROUP_NAMES)),
        Heading("mean confidence, %"),
        Heading("calibration error, %"),
    ]
    rows: list[list[Cell | str]] = [
        [
            f"exit {quality.exit}",
            cost_cell(quality.cost),
            percent_cell(quality.accuracy),
            *(percent_cell(quality.accuracy_by_group[group]) for group in GROUP_NAMES),
            percent_cell(quality.mean_confidence),
            percent_cell(quality.calibration_error),
        ]
        for quality in record.results.exits
    ]
    caption = (
        f"Each exit evaluated on all examples. {record.measured_on}. Calibration error: mean gap between confidence "
        f"and accuracy over 15 equal bins of confidence."
    )
    return Table(headings=headings, rows=rows, caption=caption)


def exit_figures(record: RunRecord, key: str) -> FigureGrid:
    """Return the figures about exits in training, if there are several, and the reliability of each exit."""
    if record.plain:
        return figure_grid(key, reliability_by_exit(record))
    return figure_grid(
        key,
        loss_by_exit(record),
        loss_by_exit_over_epochs(record),
        exit_shares_over_epochs(record),
        loss_shares_over_epochs(record),
        reliability_by_exit(record),
    )


def class_figures(record: RunRecord, key: str) -> FigureGrid:
    """Return training images, accuracy and confidence by class, with a table beside the figures."""
    return figure_grid(
        key,
        class_distribution(record),
        accuracy_by_class(record),
        confidence_in_true_class(record),
        class_table(record),
    )


def class_table(record: RunRecord) -> Table:
    """Return one row per class, most frequent first; folded if there are many."""
    points = ("full",) if record.plain else CHOSEN_POINTS
    names, counts_C, group_of_class_C = record.info.data.class_names, record.class_counts, record.group_of_class
    number = len(names)
    order = np.argsort(-counts_C, kind="stable").tolist()
    left_out = max(0, number - MAX_CLASS_ROWS)
    if left_out:
        order = order[: MAX_CLASS_ROWS // 2] + order[-MAX_CLASS_ROWS // 2 :]
    rows = [
        [
            names[c],
            Cell(fmt.count(int(counts_C[c])), int(counts_C[c])),
            Cell(GROUP_NAMES[group_of_class_C[c]], int(group_of_class_C[c])),
            *(percent_cell(record.at(point).accuracy_by_class[c]) for point in points),
        ]
        for c in order
    ]
    omission = (
        f" {left_out:,} classes between the most frequent and the rarest are left out; metrics.json lists all."
        if left_out
        else ""
    )
    which = f"{MAX_CLASS_ROWS:,} of {number:,} classes" if left_out else f"all {number:,} classes"
    return Table(
        headings=[
            Heading("class", numeric=False),
            Heading("training images"),
            Heading("group", numeric=False),
            *(Heading(point, "accuracy, %") for point in points),
        ],
        rows=rows,
        caption=f"Accuracy by class, most frequent first. {record.measured_on}. A dash means no examples.{omission}",
        sortable=True,
        folded=f"Table of {which}" if number > MAX_CLASS_ROWS_UNFOLDED else "",
    )
