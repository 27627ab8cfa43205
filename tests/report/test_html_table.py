"""Tables of the page."""

from xml.etree import ElementTree

from elfnet.report.html_table import Cell, Heading, html_table


def test_groups_span_their_columns_and_cells_carry_what_they_sort_by() -> None:
    headings = [Heading("a", numeric=False), Heading("b", "g"), Heading("c", "g"), Heading("d")]
    rows = [["<x>", Cell("1.0", 1.0), Cell("–", None), 3], ["y", 1, 2, 3]]
    table = ElementTree.fromstring(html_table("n = 3", headings, rows, sortable=True, emphasised=frozenset({1})))
    group_row, heading_row = table.findall(".//thead/tr")
    assert [(cell.text, cell.get("colspan")) for cell in group_row] == [(None, "1"), ("g", "2"), (None, "1")]
    assert [cell.text for cell in heading_row] == ["a", "b", "c", "d"]
    first, second = table.findall(".//tbody/tr")
    assert [cell.text for cell in first] == ["<x>", "1.0", "–", "3"]
    assert [cell.get("data-value") for cell in first] == [None, "1", None, None]
    assert [cell.tag for cell in first] == ["th", "td", "td", "td"]
    assert (first.get("class"), second.get("class")) == (None, "emphasised")
    assert table.find(".//table[@class='sortable']") is not None
    assert table.findtext("p") == "n\u00a0=\u00a03"


def test_no_group_row_where_there_are_no_groups() -> None:
    table = ElementTree.fromstring(html_table("", [Heading("a"), Heading("b")], []))
    assert len(table.findall(".//thead/tr")) == 1
    assert table.find("p") is None
