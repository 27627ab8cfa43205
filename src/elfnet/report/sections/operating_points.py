"""The operating points: accuracy by group, cost and exit shares of each, on the test split."""

from collections.abc import Sequence

from elfnet.data.groups import GROUP_NAMES
from elfnet.report import formatting as say
from elfnet.report.html_table import Cell, Heading, html_table
from elfnet.report.markup import Markup, element, joined, unbroken
from elfnet.report.record import RunRecord

CHOSEN = ("full", "accurate", "economic")
PROMISED = ("loss", "groups", "epsilon", "delta", "method", "n_certified", "empirical_risk")
"""Of a point under risk control: what is bounded by epsilon with probability 1 - delta, and on how many examples."""
MOST_ROWS_TOGETHER = 16
"""With more points than this, each rule has a table of its own, folded away."""


def cost_unit(record: RunRecord) -> str:
    return f"Cost: {record.results.cost_unit}; 1 is the backbone without exits, and heads are included."


def operating_points(record: RunRecord) -> Markup:
    """The table, with the points that were chosen by rule standing out."""
    heading = element("h3", "Operating points")
    if record.plain:
        note = element("p", "A plain network has one exit: every operating point is full depth.")
        return joined(heading, _table(record, ["full"], _caption(record)), note)
    names = record.family.names()
    if len(names) <= MOST_ROWS_TOGETHER:
        return joined(heading, _table(record, names, _caption(record)), _notes(record))
    chosen = [name for name in names if name in CHOSEN]
    folded = [
        element(
            "details",
            element("summary", f"{rule.capitalize()}: {len(members)} {'point' if len(members) == 1 else 'points'}"),
            _table(record, members, f"Rule: {rule}. {record.measured_on}."),
        )
        for rule, members in by_rule(record).items()
    ]
    more = element(
        "p", f"All {len(names) - len(chosen)} other points, by the rule that found their thresholds:", class_="note"
    )
    return joined(heading, _table(record, chosen, _caption(record)), more, *folded, _notes(record))


def by_rule(record: RunRecord) -> dict[str, list[str]]:
    """The points that are not among the chosen ones, under the rule that found them, in the family's order."""
    rules: dict[str, list[str]] = {}
    for point in record.family.points:
        if point.name not in CHOSEN:
            rules.setdefault(point.rule, []).append(point.name)
    return rules


def _notes(record: RunRecord) -> Markup:
    """What calibration has to say about its choices, and what points promise."""
    notes = list(record.family.notes)
    for point in record.family.points:
        if point.promise is not None:
            facts = {key: point.promise[key] for key in PROMISED if key in point.promise}
            notes.append(f"{point.name}: " + ", ".join(f"{key.replace('_', ' ')} {facts[key]}" for key in facts))
    if not notes:
        return Markup("")
    items = element("ul", *(element("li", unbroken(note)) for note in notes))
    return element("details", element("summary", "How the points were found"), items)


def _caption(record: RunRecord) -> str:
    family = record.family
    return (
        f"{record.measured_on}. {cost_unit(record)} Thresholds chosen on the {family.split} split, n = {family.n:,}. "
        f"A dash: no examples."
    )


def _table(record: RunRecord, names: Sequence[str], caption: str) -> Markup:
    headings = [
        Heading("point", numeric=False),
        *(Heading(name, "accuracy, %") for name in ("all", *GROUP_NAMES, "balanced")),
        Heading("mean", "cost"),
        Heading("worst", "cost"),
        *(Heading(f"{k + 1}", "share leaving at exit, %") for k in range(record.exits)),
    ]
    chosen = frozenset(position for position, name in enumerate(names) if name in CHOSEN and len(names) > len(CHOSEN))
    return html_table(
        caption, headings, [_row(record, name) for name in names], sortable=len(names) > 1, emphasised=chosen
    )


def _row(record: RunRecord, name: str) -> list[object]:
    point = record.at(name)
    numbers = [point.accuracy, *(point.accuracy_by_group[group] for group in GROUP_NAMES), point.balanced_accuracy]
    return [
        record.point_label(name),
        *(Cell(say.percent(number), number) for number in numbers),
        Cell(say.cost(point.mean_cost), point.mean_cost),
        Cell(say.cost(point.worst_cost), point.worst_cost),
        *(Cell(say.percent(share), share) for share in point.exit_share),
    ]
