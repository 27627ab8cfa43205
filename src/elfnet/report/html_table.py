"""HTML tables: a heading row, optionally grouped, and rows whose first cell names them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from elfnet.report.markup import Markup, element, joined, unbroken


@dataclass(frozen=True)
class Heading:
    """A column.

    Attributes:
        label: what stands above it.
        group: what stands above it and its neighbours of the same group.
        numeric: numbers are set flush right.
    """

    label: str
    group: str = ""
    numeric: bool = True


@dataclass(frozen=True)
class Cell:
    """What a cell shows, and the number it is sorted by; None sorts last."""

    shown: object
    value: float | None = None


def html_table(
    caption: str,
    headings: Sequence[Heading],
    rows: Iterable[Sequence[object]],
    *,
    sortable: bool = False,
    emphasised: frozenset[int] = frozenset(),
) -> Markup:
    """A table that scrolls sideways by itself where the screen is too narrow for it.

    Args:
        rows: cells, texts or markup; the first of each row is the row's heading.
        sortable: clicking a heading sorts (where scripts run; it is a table without them too).
        emphasised: positions of rows that stand out.
    """
    body = joined(
        *(
            _row(headings, row, class_="emphasised" if position in emphasised else None)
            for position, row in enumerate(rows)
        )
    )
    table = element(
        "table",
        element("thead", _group_row(headings), _heading_row(headings)),
        element("tbody", body),
        class_="sortable" if sortable else None,
    )
    # The caption stands outside what scrolls, and names it: a part that takes the keyboard's focus needs a name.
    return element(
        "div",
        element("p", unbroken(caption), class_="caption") if caption else "",
        element("div", table, class_="scroll", tabindex=0, role="region", aria_label=caption or "table"),
        class_="table",
    )


def _group_row(headings: Sequence[Heading]) -> Markup:
    if not any(heading.group for heading in headings):
        return Markup("")
    cells = []
    for group, members in groupby(headings, key=lambda heading: heading.group):
        span = len(list(members))
        cells.append(element("th", group, colspan=span, scope="colgroup", class_="group") if group else _blank(span))
    return element("tr", *cells)


def _blank(span: int) -> Markup:
    return element("td", colspan=span)


def _heading_row(headings: Sequence[Heading]) -> Markup:
    return element(
        "tr", *(element("th", one.label, scope="col", class_="number" if one.numeric else None) for one in headings)
    )


def _row(headings: Sequence[Heading], row: Sequence[object], *, class_: str | None) -> Markup:
    assert len(row) == len(headings), "a row has a cell for every column"
    cells = []
    for position, (heading, content) in enumerate(zip(headings, row, strict=True)):
        cell = content if isinstance(content, Cell) else Cell(content)
        cells.append(
            element(
                "td" if position else "th",
                cell.shown,
                scope=None if position else "row",
                class_="number" if heading.numeric else None,
                data_value=None if cell.value is None else f"{cell.value:.10g}",
            )
        )
    return element("tr", *cells, class_=class_)
