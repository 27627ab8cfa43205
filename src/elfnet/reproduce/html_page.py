"""A table as one HTML file that asks nothing of any other host."""

from importlib import resources

from elfnet.report.html_table import Heading, html_table
from elfnet.report.markup import Markup, element, trusted
from elfnet.reproduce.layout import Document, Grid
from elfnet.version import __version__

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
# A line between the paper's rows and the others, which the report's pages have no use for, and room for many columns.
OWN_STYLE = """
main { max-width: 1500px; }
tbody tr.emphasised > * { border-top: 2px solid var(--muted); background: none; font-weight: inherit; }
.scroll tr.emphasised > :first-child { background: var(--card); }
"""


def html_page(document: Document) -> str:
    """The page, in the look of the reports; light or dark as the reader has it."""
    style = resources.files("elfnet.report").joinpath("page.css").read_text(encoding="utf-8")
    head = element(
        "head",
        element("meta", charset="utf-8"),
        trusted(f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("link", rel="icon", href="data:,"),
        element("title", document.title),
        element("style", trusted(style + OWN_STYLE)),
    )
    notes = element("ul", *(element("li", note) for note in document.notes), class_="note")
    main = element(
        "main",
        element("header", element("h1", document.title)),
        notes,
        *(element("section", element("h2", grid.title), _grid(grid)) for grid in document.grids),
        element("footer", f"Written by elfnet {__version__} from the records of the runs."),
    )
    return f"<!DOCTYPE html>\n{element('html', head, element('body', main), lang='en')}\n"


def _grid(grid: Grid) -> Markup:
    headings = [Heading(one.label, one.group, one.numeric) for one in grid.headings]
    return html_table("", headings, grid.rows, emphasised=grid.rules)
