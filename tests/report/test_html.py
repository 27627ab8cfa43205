"""Tables, templates and escaping."""

import re
from importlib import resources
from typing import Any
from xml.etree import ElementTree

import pytest
from jinja2 import Environment, TemplateSyntaxError, UndefinedError
from markupsafe import Markup

from elfnet.report.html import Cell, DrawnFigure, FigureGrid, Heading, Table, _environment, asset, render

HOSTILE = "<script>alert(1)</script>\"'&{{ 7 * 7 }}{%raw%}"


def macro(name: str, *arguments: object) -> str:
    module: Any = _environment().get_template("macros.html").module
    return str(getattr(module, name)(*arguments))


def parsed(table: Table) -> ElementTree.Element:
    return ElementTree.fromstring(macro("table", table).strip())


def test_groups_span_their_columns_and_cells_carry_their_sort_key() -> None:
    headings = [Heading("a", numeric=False), Heading("b", "g"), Heading("c", "g"), Heading("d")]
    rows: list[list[Cell | str]] = [["<x>", Cell("1.0", 1.0), Cell("–", None), "3"], ["y", "1", "2", "3"]]
    table = parsed(
        Table(headings=headings, rows=rows, caption="n = 3", sortable=True, emphasised=frozenset({1})),
    )
    group_row, heading_row = table.findall(".//thead/tr")
    assert [(cell.text, cell.get("colspan")) for cell in group_row] == [(None, "1"), ("g", "2"), (None, "1")]
    assert [cell.text for cell in heading_row] == ["a", "b", "c", "d"]
    first, second = table.findall(".//tbody/tr")
    assert [cell.text for cell in first] == ["<x>", "1.0", "–", "3"]
    assert [cell.get("data-value") for cell in first] == [None, "1", None, None]
    assert [cell.tag for cell in first] == ["th", "td", "td", "td"]
    assert [cell.get("class") for cell in first] == [None, "number", "number", "number"]
    assert (first.get("class"), second.get("class")) == (None, "emphasised")
    assert table.find(".//table[@class='sortable']") is not None
    assert table.findtext("p") == "n\u00a0=\u00a03"


def test_no_group_row_and_no_caption_if_there_are_none() -> None:
    table = parsed(Table(headings=[Heading("a"), Heading("b")], rows=[]))
    assert len(table.findall(".//thead/tr")) == 1
    assert table.find("p") is None


def test_a_folded_table_is_under_its_summary() -> None:
    details = parsed(Table(headings=[Heading("a")], rows=[["1"]], folded="One row"))
    assert details.tag == "details"
    assert details.findtext("summary") == "One row"
    assert details.findtext(".//tbody//th") == "1"


def test_content_of_cells() -> None:
    cells = [
        Cell("run", link="#run-1", detail="n = 5"),
        Cell("+1.0", bold=True, interval="[0.5, 1.5]"),
        Cell("elfnet train", code=True),
    ]
    table = Table(headings=[Heading("a"), Heading("b"), Heading("c")], rows=[cells])
    row = parsed(table).find(".//tbody/tr")
    assert row is not None
    assert [ElementTree.tostring(cell[0], encoding="unicode") for cell in row] == [
        '<a href="#run-1">run</a>',
        "<strong>+1.0</strong> ",
        "<code>elfnet train</code>",
    ]
    assert "".join(row[0].itertext()) == "runn\u00a0=\u00a05"
    assert "".join(row[1].itertext()) == "+1.0 [0.5, 1.5]"


def test_every_row_has_a_cell_for_every_column() -> None:
    with pytest.raises(ValueError, match="zip"):
        _ = Table(headings=[Heading("a"), Heading("b")], rows=[["1"]]).cells


def test_figures_beside_tables_and_reasons_below() -> None:
    drawing = DrawnFigure("<t>.", "n = 2", Markup("<svg><g/></svg>"))
    table = Table(headings=[Heading("a")], rows=[])
    root = ElementTree.fromstring(
        f"<div>{macro('figures', FigureGrid((drawing, table), ('no <table>', 'no log')))}</div>"
    )
    assert [child.tag for child in root[0]] == ["figure", "div"]
    assert root[0].get("class") == "figures"
    assert root.findtext(".//figcaption/strong") == "<t>. "
    assert root.find(".//svg/g") is not None
    assert [note.text for note in root.findall("p")] == ["Not drawn: no <table>.", "Not drawn: no log."]
    alone = ElementTree.fromstring(macro("figures", FigureGrid((drawing,))).strip())
    assert alone.get("class") == "figures one"


def test_every_text_of_a_page_is_text() -> None:
    """Neither HTML nor template syntax in a user's text has any effect, in elements and in attributes."""
    heading = Heading(HOSTILE, HOSTILE)
    cell = Cell(HOSTILE, link=HOSTILE, interval=HOSTILE, detail=HOSTILE)
    table = Table(headings=[heading, heading], rows=[[cell, HOSTILE]], caption=HOSTILE, sortable=True, folded=HOSTILE)
    page = render("tables.html", title=HOSTILE, notes=[HOSTILE], sections=[(HOSTILE, table)], script=None)
    assert "<script" not in page
    assert "49" not in page  # the product is not computed
    escaped = "&lt;script&gt;alert(1)&lt;/script&gt;&#34;&#39;&amp;{{ 7 * 7 }}{%raw%}"
    assert page.count(escaped) == page.count("alert(1)") == 15
    root = ElementTree.fromstring(page.partition("<main>")[2].partition("<footer>")[0].join(("<main>", "</main>")))
    assert root.findtext("header/h1") == HOSTILE
    region = root.find(".//div[@role='region']")
    assert region is not None
    assert region.get("aria-label") == HOSTILE


def test_control_characters_do_not_reach_the_page() -> None:
    page = render("tables.html", title="a\x00b\u202ec\ud800", notes=[], sections=[], script=None)
    assert "<h1>a\ufffdb\ufffdc\ufffd</h1>" in page
    page.encode()


def test_a_value_that_a_template_lacks_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="'notes' is undefined"):
        render("tables.html", title="t", sections=[], script=None)


def test_scripts_are_allowed_by_their_hash_only() -> None:
    without = render("tables.html", title="t", notes=[], sections=[], script=None)
    assert "content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">" in without
    assert "<script" not in without
    assert without.endswith("</html>\n")
    page = render("tables.html", title="t", notes=[], sections=[], script=Markup("alert('<&>')"))
    # printf "%s" "alert('<&>')" | openssl dgst -sha256 -binary | base64
    assert "script-src 'sha256-3GjuZIIQF0+Ah2bn17YTTq5YLkEptczK9Tdzq4mEyas='" in page
    assert "<script>alert('<&>')</script>" in page


def test_templates_escape_and_mark_nothing_as_safe() -> None:
    """Only drawings, assets and the page's script are markup, and they are made by this package."""
    folder = resources.files("elfnet.report").joinpath("templates")
    templates = {file.name: file.read_text(encoding="utf-8") for file in folder.iterdir()}
    assert set(templates) == set(_environment().list_templates())
    assert len(templates) >= 7
    for name, source in templates.items():
        _environment().get_template(name)
        assert not re.search(r"\|\s*safe|autoescape|Markup", source), name
    with pytest.raises(TemplateSyntaxError):  # get_template would find a mistake
        Environment(autoescape=True).from_string("{% if %}")


def test_assets_end_no_element_early() -> None:
    for name in ("page.css", "sort_tables.js", "slider.js", "print_details.js"):
        assert "</" not in asset(name), name
