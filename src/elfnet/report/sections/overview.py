"""The first thing to read of a run: three numbers and the summary in words."""

from elfnet.report import formatting as say
from elfnet.report.markup import Markup, element, joined, unbroken
from elfnet.report.record import RunRecord
from elfnet.report.summary import summary

_MEANING = {
    "full": "nobody leaves early",
    "accurate": "most accurate on the calibration split",
    "economic": "cheapest within the tolerance there",
}


def overview(record: RunRecord) -> Markup:
    """Cards for the chosen operating points, then the summary."""
    names = ("full",) if record.plain else tuple(_MEANING)
    cards = element("div", *(_card(record, name) for name in names), class_="cards")
    paragraphs = (
        element("p", element("strong", f"{lead}. "), unbroken(text)) for lead, text in summary(record).items()
    )
    words = element("div", *paragraphs, class_="summary")
    return joined(cards, words)


def _card(record: RunRecord, name: str) -> Markup:
    point = record.at(name)
    balanced = (
        ""
        if say.percent(point.balanced_accuracy) == say.percent(point.accuracy)
        else f", balanced {say.percent(point.balanced_accuracy)} %"
    )
    return element(
        "div",
        element("div", "full depth" if name == "full" else record.point_label(name), class_="card-name"),
        element("div", say.percent(point.accuracy), element("span", " %"), class_="card-number"),
        element("div", f"at {say.cost(point.mean_cost)} × plain cost{balanced}"),
        element("div", "a plain network" if record.plain else _MEANING[name], class_="card-note"),
        class_="card",
    )
