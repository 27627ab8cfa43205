"""A table as one HTML file that asks nothing of any other host."""

from elfnet.report.html import Heading, Table, render
from elfnet.reproduce.layout import Document, Grid


def html_page(document: Document) -> str:
    """The page, in the look of the reports; light or dark as the reader has it."""
    sections = [(grid.title, _table(grid)) for grid in document.grids]
    return render("tables.html", title=document.title, notes=document.notes, sections=sections, script=None)


def _table(grid: Grid) -> Table:
    headings = [Heading(one.label, one.group, one.numeric) for one in grid.headings]
    return Table(headings=headings, rows=grid.rows, emphasised=grid.rules)
