"""Accuracy against cost, and who leaves where on the test split."""

from elfnet.data.groups import GROUP_NAMES
from elfnet.evaluate.accuracy import Metrics
from elfnet.evaluate.curve import CurvePoint
from elfnet.report.figure_block import figure_block, figure_grid
from elfnet.report.figures.accuracy_cost_curve import CurveLine, draw_accuracy_cost_curve
from elfnet.report.figures.exit_shares_at_points import draw_exit_shares_at_points
from elfnet.report.figures.style import GROUP_LOOKS, POINT_MARKERS
from elfnet.report.markup import Markup, element, joined
from elfnet.report.run_record import RunRecord

ALL_AND_GROUPS = ("all", *GROUP_NAMES)


def trade_off(record: RunRecord, key: str) -> Markup:
    """The curve and the exit shares; nothing to draw for a plain network."""
    if record.plain:
        return Markup("")
    return joined(
        element("h3", "Accuracy against cost"),
        figure_grid(_curve(record, key), _shares(record, key)),
    )


def accuracy_of(source: Metrics | CurvePoint, group: str) -> float | None:
    return source.accuracy if group == "all" else source.accuracy_by_group[group]


def operating_marks(record: RunRecord, group: str) -> dict[str, tuple[float, float]]:
    """Cost and accuracy of the chosen points."""
    marks = {}
    for name in POINT_MARKERS:
        accuracy = accuracy_of(record.at(name), group)
        if accuracy is not None:
            marks[name] = (record.at(name).mean_cost, accuracy)
    return marks


def _curve(record: RunRecord, key: str) -> Markup:
    curve, sizes = record.results.curve, record.at("full").n_by_group
    lines = []
    for group in ALL_AND_GROUPS:
        known = [(point.mean_cost, accuracy_of(point, group)) for point in curve]
        costs = [cost for cost, accuracy in known if accuracy is not None]
        accuracies = [accuracy for _, accuracy in known if accuracy is not None]
        if accuracies:
            lines.append(CurveLine(group, GROUP_LOOKS[group], costs, accuracies, operating_marks(record, group)))
    groups = ", ".join(f"{name} {sizes[name]:,}" for name in GROUP_NAMES if sizes[name])
    return figure_block(
        draw_accuracy_cost_curve(lines),
        f"{key}-curve",
        "One network, many costs",
        f"One threshold for all exits, from 0 (left: everybody leaves at exit 1) to 1 (right: nobody leaves early). "
        f"{record.measured_on} ({groups}).",
    )


def _shares(record: RunRecord, key: str) -> Markup:
    points = _points_once(record)
    shares = {
        group: [
            record.at(name).exit_share if group == "all" else record.at(name).exit_share_by_group[group]
            for name in points
        ]
        for group in ALL_AND_GROUPS
    }
    return figure_block(
        draw_exit_shares_at_points(list(points.values()), shares),
        f"{key}-test-shares",
        "Who leaves where",
        f"Share of the examples leaving at each exit, by operating point and frequency group. {record.measured_on}.",
    )


def _points_once(record: RunRecord) -> dict[str, str]:
    """Each point once, cheapest first, with the names it was chosen under."""
    chosen: dict[str, list[str]] = {}
    for point in record.family.points:
        if point.same_as is not None:
            chosen.setdefault(point.same_as, []).append(point.name)
    own = [point.name for point in record.family.points if point.same_as is None]
    own.sort(key=lambda name: record.at(name).mean_cost)
    return {name: ", ".join([name, *chosen.get(name, [])]) for name in own}
