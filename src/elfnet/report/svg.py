"""Matplotlib figures as inline SVG: small, reproducible byte for byte, in the colours and the font of the page."""

import io
import re
import warnings
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from markupsafe import Markup

from elfnet.report.figures.base import (
    BLUE,
    GRID,
    INK,
    MUTED,
    PAPER,
    FigureOrReason,
    NoFigure,
    RunFigure,
    figure_style,
)
from elfnet.report.formatting import readable
from elfnet.report.html import DrawnFigure, FigureGrid, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SVG = "{http://www.w3.org/2000/svg}"
_XLINK = "{http://www.w3.org/1999/xlink}"
# Colours that change between light and dark mode; page.css defines them for each.
_THEME = {INK: "var(--ink)", MUTED: "var(--muted)", GRID: "var(--grid)", PAPER: "var(--card)", BLUE: "var(--blue)"}
_LONG_NUMBER = re.compile(r"-?\d+\.\d{3,}")
# One property or two, depending on the version of matplotlib. The size is kept; the font is that of the page.
_FONT = re.compile(r"font: (?:\d+ )?([\d.]+px) [^;]+")
_FAMILY = re.compile(r"font-family: [^;]+; ?")
_REFERENCE = re.compile(r"url\(#([^)]+)\)")
_GEOMETRY = ("d", "transform", "x", "y", "x1", "x2", "y1", "y2", "width", "height", "points")


def figure_grid(key: str, *blocks: FigureOrReason | Table) -> FigureGrid:
    """Draw figures for the page.

    Args:
        key: of the part of the page that they stand in; makes their ids unique.
        blocks: figures, and tables beside them, in reading order.
    """
    shown = tuple(
        draw_figure(block, key) if isinstance(block, RunFigure) else block
        for block in blocks
        if not isinstance(block, NoFigure)
    )
    return FigureGrid(shown, tuple(dict.fromkeys(block.reason for block in blocks if isinstance(block, NoFigure))))


def draw_figure(figure: RunFigure, key: str) -> DrawnFigure:
    """Draw one figure; `key` and the figure's name make its ids unique in the page."""
    title = figure.title if figure.title.endswith("?") else f"{figure.title}."
    svg = inline_svg(figure.draw(), f"{key}-{figure.name}", f"{title} {figure.caption}")
    return DrawnFigure(title, figure.caption, svg)


def inline_svg(figure: "Figure", name: str, label: str) -> Markup:
    """Return a figure as an `<svg>` element, whose texts can be searched and read aloud.

    Args:
        name: prefix of all ids; unique in the page.
        label: description for screen readers.
    """
    root = ElementTree.fromstring(_rendered(figure, name))
    for parent in list(root.iter()):
        for child in list(parent):
            # Metadata would change with date and version; the style sheet would apply to the whole page.
            if child.tag.startswith(_SVG) and child.tag.removeprefix(_SVG) in ("metadata", "style"):
                parent.remove(child)
    used = _referenced(root)
    for node in root.iter():
        node.tag = node.tag.removeprefix(_SVG)
        node.attrib = {
            key.removeprefix(_XLINK): _rewritten(name, key.removeprefix(_XLINK), value)
            for key, value in node.attrib.items()
            if key != "id" or value in used
        }
        if node.tag != "text":
            node.text = None
        node.tail = None
    root.attrib = {
        "class": "plot",
        "role": "img",
        "aria-label": readable(label),
        "viewBox": root.attrib["viewBox"],
    }
    # HTML knows SVG elements by name. Without namespaces, the page contains no address of another host.
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def _rendered(figure: "Figure", name: str) -> bytes:
    import matplotlib

    written = io.BytesIO()
    with figure_style(), warnings.catch_warnings():
        # The browser has fonts for characters that matplotlib's font lacks.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": f"elfnet {name}"})
        figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None})
    return written.getvalue()


def _referenced(root: ElementTree.Element) -> set[str]:
    """Return the ids that are used; matplotlib gives an id to every group."""
    used = set()
    for node in root.iter():
        for key, value in node.attrib.items():
            used.update(_REFERENCE.findall(value))
            if key.removeprefix(_XLINK) == "href":
                used.add(value.removeprefix("#"))
    return used


def _rewritten(name: str, key: str, value: str) -> str:
    if key == "id":
        return f"{name}-{value}"
    if key == "href" and value.startswith("data:"):
        return "".join(value.split())
    if key == "href":
        return f"#{name}-{value.removeprefix('#')}"
    if key in _GEOMETRY:
        return " ".join(_LONG_NUMBER.sub(_rounded, value).split())
    if key in ("style", "fill", "stroke"):
        for colour, variable in _THEME.items():
            value = value.replace(colour, variable)
        value = _FAMILY.sub("", _FONT.sub(r"font-size: \1", value))
    return _REFERENCE.sub(rf"url(#{name}-\1)", value)


def _rounded(match: re.Match[str]) -> str:
    # Adding 0 turns -0 into 0.
    return f"{round(float(match[0]), 2) + 0.0:.10g}"
