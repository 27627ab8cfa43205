"""A figure in the page: the drawing, and a caption that says what it shows, of which split and how many examples."""

from elfnet.report.figures.base import FigureOrReason, NoFigure, RunFigure
from elfnet.report.markup import Markup, element, joined, unbroken
from elfnet.report.svg import inline_svg


def figure_block(figure: RunFigure, key: str) -> Markup:
    """The figure on its card.

    Args:
        figure: what to draw.
        key: of the part of the page it stands in; with the figure's name it is unique.
    """
    return element(
        "figure",
        element("figcaption", element("strong", f"{figure.title}{_stop(figure.title)} "), unbroken(figure.caption)),
        inline_svg(figure.draw(), f"{key}-{figure.name}", f"{figure.title}{_stop(figure.title)} {figure.caption}"),
    )


def _stop(title: str) -> str:
    return "" if title.endswith("?") else "."


def figure_blocks(key: str, *figures: FigureOrReason | Markup) -> Markup:
    """A grid of figures, and of markup that stands beside them; below it, once each, why a figure is missing."""
    drawn = [
        figure_block(figure, key) if isinstance(figure, RunFigure) else figure
        for figure in figures
        if not isinstance(figure, NoFigure)
    ]
    reasons = dict.fromkeys(figure.reason for figure in figures if isinstance(figure, NoFigure))
    grid = element("div", *drawn, class_="figures" if len(drawn) > 1 else "figures one") if drawn else Markup("")
    return joined(grid, *(element("p", f"Not drawn: {reason}.", class_="note") for reason in reasons))
