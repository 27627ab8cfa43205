"""A figure in the page: the drawing, and a caption that says what it shows, of which split and how many examples."""

from typing import TYPE_CHECKING

from elfnet.report.markup import Markup, element, unbroken
from elfnet.report.svg import inline_svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def figure_block(figure: "Figure", name: str, title: str, caption: str) -> Markup:
    """The figure on its card.

    Args:
        name: unique in the page.
        title: a few words.
        caption: what the reader needs to know to read it, with n and split.
    """
    return element(
        "figure",
        element("figcaption", element("strong", f"{title}. "), unbroken(caption)),
        inline_svg(figure, name, f"{title}. {caption}"),
    )


def figure_grid(*figures: Markup) -> Markup:
    return element("div", *figures, class_="figures")
