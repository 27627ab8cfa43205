"""The slider: a budget, and what each run gives for it. Without a script, and on paper, a table says the same."""

import json
from collections.abc import Sequence

import numpy as np

from elfnet.data.groups import GROUP_NAMES
from elfnet.report import formatting as say
from elfnet.report.budget_tracks import Track, TrackPoint, track_json, tracks_of
from elfnet.report.html_table import Heading, html_table
from elfnet.report.markup import Markup, element, joined, trusted, unbroken
from elfnet.report.record import RunRecord
from elfnet.report.sections.operating_points import cost_unit

STEP = 0.005
MOST_TABLE_ROWS = 24


def dial(records: Sequence[RunRecord], key: str) -> Markup:
    """One slider for all these runs; nothing where none of them has an early exit."""
    if all(record.plain for record in records):
        return Markup("")
    tracks = [tracks_of(record) for record in records]
    lowest, highest = _range(records, tracks)
    start = highest if len(records) > 1 else min(highest, _up(records[0].at("economic").mean_cost))
    content = {"runs": [[track_json(track) for track in of_run] for of_run in tracks]}
    several = len(records) > 1
    return joined(
        element("h3", "What does a budget buy?"),
        element(
            "div",
            # A data block: nothing executes it, and "<" cannot end it early.
            element("script", trusted(json.dumps(content).replace("<", "\\u003c")), type="application/json"),
            _controls(tracks, key, lowest, highest, start),
            element(
                "div",
                *(_panel(record, with_name=several) for record in records),
                class_="panels",
                aria_live="polite",
            ),
            element("p", unbroken(_note(records)), class_="card-note"),
            _tables(records, tracks, lowest, highest),
            class_="dial card",
        ),
    )


def _range(records: Sequence[RunRecord], tracks: Sequence[Sequence[Track]]) -> tuple[float, float]:
    """From the cheapest point of all to full depth, the dearest that is worth its cost."""
    cheapest = min(point.limit for of_run in tracks for track in of_run for point in track.points)
    return _up(cheapest), _up(max(record.at("full").mean_cost for record in records))


def _up(cost: float) -> float:
    """To the next step of the slider."""
    return round(float(np.ceil(cost / STEP - 1e-6)) * STEP, 6)


def _choices(tracks: Sequence[Sequence[Track]]) -> Sequence[Track]:
    """What the reader chooses between; a run that has fewer tracks stays on its last."""
    return max(tracks, key=lambda of_run: len(of_run))


def _controls(tracks: Sequence[Sequence[Track]], key: str, lowest: float, highest: float, start: float) -> Markup:
    slider = f"{key}-budget"
    radios = [
        element(
            "label",
            element("input", type="radio", name=f"{key}-track", value=position, checked=position == 0),
            f" {track.title}",
        )
        for position, track in enumerate(_choices(tracks))
    ]
    return element(
        "div",
        element(
            "label",
            "Budget: mean cost of at most ",
            element("output", f"{start:.3f}", for_=slider, class_="budget"),
            for_=slider,
        ),
        element(
            "input",
            type="range",
            id=slider,
            min=f"{lowest:g}",
            max=f"{highest:g}",
            step=STEP,
            value=f"{start:g}",
        ),
        element("fieldset", element("legend", "Within it,"), *radios) if len(radios) > 1 else "",
        class_="controls",
    )


def _panel(record: RunRecord, *, with_name: bool) -> Markup:
    """Filled by the script: texts by `data-field`, bars by `data-bar`, shares by `data-share`."""
    sizes = {"all": record.at("full").n, **record.at("full").n_by_group}
    rows = [
        element(
            "div",
            element("span", name, class_="bar-name"),
            element("span", element("span", data_bar=position), class_="bar"),
            element("span", say.DASH, data_field=position, class_="bar-value"),
            class_="bar-row",
        )
        for position, name in enumerate(("all", *GROUP_NAMES))
        if sizes[name]
    ]
    exits = range(record.exits)
    stack = element("div", *(element("span", data_share=k, class_=f"exit-{k % 7}") for k in exits), class_="stack")
    legend = element(
        "ul",
        *(
            element(
                "li",
                element("span", class_=f"swatch exit-{k % 7}"),
                f" exit {k + 1}: ",
                element("span", say.DASH, data_percent=k),
            )
            for k in exits
        ),
    )
    return element(
        "div",
        element("div", record.name, class_="card-name") if with_name else "",
        element("div", element("strong", say.DASH, data_text="label"), " · mean cost ", _slot("cost")),
        element("div", "accuracy, %", class_="card-note"),
        *rows,
        element("div", "share leaving at each exit, %", class_="card-note"),
        stack,
        legend,
        class_="panel",
    )


def _slot(name: str) -> Markup:
    return element("span", say.DASH, data_text=name)


def _note(records: Sequence[RunRecord]) -> str:
    numbers = ", ".join(dict.fromkeys(record.measured_on for record in records))
    return f"{cost_unit(records[0])} {numbers}. A dash: no examples, or nothing within the budget."


def _tables(records: Sequence[RunRecord], tracks: Sequence[Sequence[Track]], lowest: float, highest: float) -> Markup:
    budgets = np.linspace(lowest, highest, max(2, min(11, MOST_TABLE_ROWS // len(records)))).tolist()
    tables = []
    for position, track in enumerate(_choices(tracks)):
        rows = [
            _row(record, budget, of_run[min(position, len(of_run) - 1)].within(budget), with_name=len(records) > 1)
            for budget in budgets
            for record, of_run in zip(records, tracks, strict=True)
        ]
        headings = [
            Heading("budget"),
            *([Heading("run", numeric=False)] if len(records) > 1 else []),
            Heading("point", numeric=False),
            *(Heading(name, "accuracy, %") for name in ("all", *GROUP_NAMES)),
            Heading("mean cost"),
            Heading("leaving at exits 1, 2, ..., %", numeric=False),
        ]
        tables.append(html_table(f"Within the budget: {track.title}.", headings, rows))
    return element("div", *tables, class_="instead")


def _row(record: RunRecord, budget: float, point: TrackPoint | None, *, with_name: bool) -> list[object]:
    named: list[object] = [f"{budget:.3f}", *([record.name] if with_name else [])]
    if point is None:
        return [*named, *([say.DASH] * (len(GROUP_NAMES) + 4))]
    return [
        *named,
        point.label,
        *(say.percent(accuracy) for accuracy in (point.accuracy, *point.accuracy_by_group)),
        say.cost(point.mean_cost),
        " / ".join(say.percent(share) for share in point.exit_share),
    ]
