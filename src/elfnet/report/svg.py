"""A matplotlib figure as SVG inside the page: small, the same bytes every time, and in the page's colours."""

import io
import re
import warnings
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from elfnet.report.figures.base import BLUE, GRID, INK, MUTED, PAPER, house_style
from elfnet.report.markup import Markup, readable, trusted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SVG = "{http://www.w3.org/2000/svg}"
_XLINK = "{http://www.w3.org/1999/xlink}"
# Colours that follow the page between light and dark; page.css says what they are in each.
_THEME = {INK: "var(--ink)", MUTED: "var(--muted)", GRID: "var(--grid)", PAPER: "var(--card)", BLUE: "var(--blue)"}
_LONG_NUMBER = re.compile(r"-?\d+\.\d{3,}")
# Written as one property or as two, by the version of matplotlib; the size stays, the page has its own font.
_FONT = re.compile(r"font: (?:\d+ )?([\d.]+px) [^;]+")
_FAMILY = re.compile(r"font-family: [^;]+; ?")
_REFERENCE = re.compile(r"url\(#([^)]+)\)")
_GEOMETRY = ("d", "transform", "x", "y", "x1", "x2", "y1", "y2", "width", "height", "points")


def inline_svg(figure: "Figure", name: str, label: str) -> Markup:
    """The figure as an `<svg>` element.

    Text stays text: it is small, can be searched and read aloud, and takes the page's font.

    Args:
        name: unique in the page; keeps the ids of several figures apart.
        label: what a screen reader says instead of the picture.
    """
    root = ElementTree.fromstring(_rendered(figure, name))
    for parent in list(root.iter()):
        for child in list(parent):
            # Metadata says when and with what the file was made; the style sheet would apply to the whole page.
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
    # HTML knows svg elements by name; without namespaces the page holds no address at all.
    return trusted(ElementTree.tostring(root, encoding="unicode"))


def _rendered(figure: "Figure", name: str) -> bytes:
    import matplotlib

    written = io.BytesIO()
    with house_style(), warnings.catch_warnings():
        # The browser has fonts for what DejaVu lacks.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": f"elfnet {name}"})
        figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None})
    return written.getvalue()


def _referenced(root: ElementTree.Element) -> set[str]:
    """The ids that something in the figure points to; matplotlib names every group besides."""
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
