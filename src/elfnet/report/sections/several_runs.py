"""Several runs side by side: one table, one curve each, and whether the differences are more than chance."""

from collections.abc import Sequence

from elfnet.data.groups import GROUP_NAMES
from elfnet.errors import RequestError
from elfnet.evaluate.bootstrap import Difference
from elfnet.report import formatting as say
from elfnet.report.figure_block import figure_blocks
from elfnet.report.figures.base import RunFigure
from elfnet.report.figures.catalogue import figures_of_runs
from elfnet.report.html_table import Cell, Heading, html_table
from elfnet.report.markup import Markup, element, joined, unbroken
from elfnet.report.record import RunRecord
from elfnet.report.sections.dial import dial
from elfnet.report.sections.operating_points import cost_unit
from elfnet.report.summary import compare_at_full_depth


def several_runs(records: Sequence[RunRecord]) -> Markup:
    return element(
        "section",
        element("h2", "Side by side"),
        _table(records),
        dial(records, "together"),
        # Most comparisons are no ablation; that it is missing then needs no words.
        figure_blocks("together", *(one for one in figures_of_runs(records) if isinstance(one, RunFigure))),
        _differences(records),
        id="together",
    )


def _table(records: Sequence[RunRecord]) -> Markup:
    headings = [
        Heading("run", numeric=False),
        Heading("method", numeric=False),
        *(Heading(name, "full depth") for name in ("all", *GROUP_NAMES, "cost")),
        *(Heading(name, point) for point in ("accurate", "economic") for name in ("all", "cost")),
        Heading("increasing loss", numeric=False),
        Heading("training"),
    ]
    caption = (
        f"Accuracies in %, on each run's test split. {cost_unit(records[0])} A dash: no examples, or no early exit."
    )
    return html_table(caption, headings, [_row(position, record) for position, record in enumerate(records, start=1)])


def _row(position: int, record: RunRecord) -> list[object]:
    full = record.at("full")
    early: list[object] = []
    for name in ("accurate", "economic"):
        point = None if record.plain else record.at(name)
        early += [say.percent(point.accuracy), say.cost(point.mean_cost)] if point else [say.DASH, say.DASH]
    data = record.recipe.data
    ratio = "" if data.profile in ("none", "counts") else f", ratio {data.ratio:g}"
    verdict = record.epochs[-1].increasing_loss if record.epochs and not record.plain else say.DASH
    seconds = sum(one.seconds for one in record.epochs)
    network = record.network + ("" if record.plain else f", {record.exits} exits")
    what = unbroken(f"{network}; {data.source}{ratio}; test n = {full.n:,}")
    return [
        joined(element("a", record.name, href=f"#run-{position}"), element("span", what, class_="under")),
        record.method,
        say.percent(full.accuracy),
        *(say.percent(full.accuracy_by_group[group]) for group in GROUP_NAMES),
        say.cost(full.mean_cost),
        *early,
        verdict,
        say.duration(seconds) if record.epochs else say.DASH,
    ]


def _differences(records: Sequence[RunRecord]) -> Markup:
    first, *others = records
    names = ("all", *GROUP_NAMES, "balanced")
    headings = [
        Heading("run", numeric=False),
        *(Heading(name, "difference in points [95 % interval]") for name in names),
    ]
    rows: list[list[object]] = []
    refused: list[Markup] = []
    resamples = 0
    for record in others:
        try:
            comparison = compare_at_full_depth(first, record)
        except RequestError as error:
            refused.append(element("p", f"{record.name} is not compared: {error}.", class_="note"))
            continue
        resamples = comparison.resamples
        rows.append([record.name, *(_difference(comparison.differences[name]) for name in names)])
    caption = (
        f"Against {first.name}, at full depth, on the same n = {first.results.n:,} {first.results.split} examples: "
        f"paired bootstrap, {resamples:,} resamples. Bold: the interval leaves out 0. It speaks of these test images, "
        f"not of other training seeds."
    )
    table = html_table(caption, headings, rows) if rows else Markup("")
    return joined(element("h3", f"Better than {first.name}?"), table, *refused)


def _difference(difference: Difference | None) -> object:
    if difference is None:
        return say.DASH
    interval = f"[{say.signed_points(difference.low)}, {say.signed_points(difference.high)}]"
    estimate = say.signed_points(difference.estimate)
    clear = difference.low > 0 or difference.high < 0
    shown = joined(
        element("strong", estimate) if clear else estimate, " ", element("span", interval, class_="interval")
    )
    return Cell(shown, difference.estimate)
