"""HTML pages from the templates in `templates/`, and the tables and figures that the templates show.

Names of classes and runs, commands and other texts come from users' files. Autoescape is on for all templates, so that
they are shown as text whatever they contain; only SVG drawings and the files in `assets/` are inserted as markup.
Templates are part of this package and never made from a user's text.
"""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cache
from importlib import resources
from itertools import groupby

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from elfnet.report.formatting import cost, nonbreaking, percent, readable
from elfnet.version import __version__


@dataclass(frozen=True)
class Heading:
    """A column of a table.

    Attributes:
        label: text above the column.
        group: text above this column and its neighbours with the same group.
        numeric: whether the column is right-aligned.
    """

    label: str
    group: str = ""
    numeric: bool = True


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Attributes:
        value: number to sort by; cells without one sort last.
        link: address that the text links to.
        code, bold: how the text is set.
        interval: confidence interval beside the text.
        detail: second line, in small print.
    """

    text: str
    value: float | None = None
    _: KW_ONLY
    link: str = ""
    code: bool = False
    bold: bool = False
    interval: str = ""
    detail: str = ""


def percent_cell(fraction: float | None) -> Cell:
    """Return a fraction of 1 in percent, to sort by its value."""
    return Cell(percent(fraction), fraction)


def cost_cell(relative: float | None) -> Cell:
    """Return a cost relative to the plain backbone, to sort by its value."""
    return Cell(cost(relative), relative)


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table that scrolls sideways if the screen is too narrow for it.

    Attributes:
        rows: one cell per heading; the first cell of a row is the heading of the row.
        caption: text above the table.
        sortable: whether clicking a heading sorts the rows.
        emphasised: indices of highlighted rows.
        folded: if given, the table is hidden under this text until the reader opens it.
    """

    headings: Sequence[Heading]
    rows: Sequence[Sequence[Cell | str]]
    caption: str = ""
    sortable: bool = False
    emphasised: frozenset[int] = frozenset()
    folded: str = ""

    @property
    def groups(self) -> list[tuple[str, int]]:
        """Label and number of columns of each heading group; empty if no heading has a group."""
        if not any(heading.group for heading in self.headings):
            return []
        return [(label, len(list(members))) for label, members in groupby(self.headings, key=lambda one: one.group)]

    @property
    def cells(self) -> list[list[tuple[Heading, Cell]]]:
        """The rows, each cell with its heading."""
        return [
            [
                (heading, cell if isinstance(cell, Cell) else Cell(cell))
                for heading, cell in zip(self.headings, row, strict=True)
            ]
            for row in self.rows
        ]


@dataclass(frozen=True)
class DrawnFigure:
    """A figure as the page shows it."""

    title: str
    caption: str
    svg: Markup


@dataclass(frozen=True)
class FigureGrid:
    """Figures and tables side by side.

    Attributes:
        blocks: in reading order.
        missing: why figures could not be drawn, each reason once.
    """

    blocks: tuple[DrawnFigure | Table, ...]
    missing: tuple[str, ...] = ()


def render(template: str, **context: object) -> str:
    """Return a page, made from a template of this package; every text in the context is escaped."""
    return _environment().get_template(template).render(**context)


def asset(name: str) -> Markup:
    """Return the content of a file in `assets/`, which is inserted into pages unescaped."""
    return Markup(resources.files("elfnet.report").joinpath("assets", name).read_text(encoding="utf-8"))


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("elfnet.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals.update(asset=asset, version=__version__)
    environment.filters.update(nonbreaking=nonbreaking, sha256=_sha256)
    environment.tests["drawn_figure"] = lambda block: isinstance(block, DrawnFigure)
    return environment


def _printable(value: object) -> object:
    """Replace control characters in everything that is not markup; Jinja escapes the result."""
    return value if isinstance(value, Markup) else readable(value)


def _sha256(text: str) -> str:
    """Return the hash of a script as a content security policy states it."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
