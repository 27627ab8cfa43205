"""The operating points: accuracy by group, cost and exit shares of each, on the test split."""

from elfnet.data.groups import GROUP_NAMES
from elfnet.report import number_text as say
from elfnet.report.html_table import Cell, Heading, html_table
from elfnet.report.markup import Markup, element, joined
from elfnet.report.run_record import RunRecord

CHOSEN = ("full", "accurate", "economic")
COST_UNIT = "Cost: multiply-adds relative to the plain backbone (1 = the backbone without exits), heads included."


def operating_points(record: RunRecord) -> Markup:
    """The table, with the points that were chosen by rule standing out."""
    names = ["full"] if record.plain else record.family.names()
    headings = [
        Heading("point", numeric=False),
        *(Heading(name, "accuracy, %") for name in ("all", *GROUP_NAMES, "balanced")),
        Heading("mean", "cost"),
        Heading("worst", "cost"),
        *(Heading(f"{k + 1}", "share leaving at exit, %") for k in range(record.exits)),
    ]
    rows = [_row(record, name) for name in names]
    chosen = frozenset(position for position, name in enumerate(names) if name in CHOSEN)
    family = record.family
    caption = (
        f"{record.measured_on}. {COST_UNIT} Thresholds chosen on the {family.split} split, n = {family.n:,}. "
        f"A dash: no examples."
    )
    note = element("p", "A plain network has one exit: every operating point is full depth.") if record.plain else ""
    return joined(
        element("h3", "Operating points"),
        html_table(
            caption, headings, rows, sortable=not record.plain, emphasised=chosen if not record.plain else frozenset()
        ),
        note,
    )


def _row(record: RunRecord, name: str) -> list[object]:
    point = record.at(name)
    accuracies = [
        point.accuracy,
        *(point.accuracy_by_group[group] for group in GROUP_NAMES),
        point.balanced_accuracy,
    ]
    return [
        record.point_label(name),
        *(Cell(say.percent(accuracy), accuracy) for accuracy in accuracies),
        Cell(say.cost(point.mean_cost), point.mean_cost),
        Cell(say.cost(point.worst_cost), point.worst_cost),
        *(Cell(say.percent(share), share) for share in point.exit_share),
    ]
