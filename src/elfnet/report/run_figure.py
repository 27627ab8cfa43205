"""A figure of a run, before it is drawn: the same for the page and for files, with the caption it needs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class RunFigure:
    """What to draw, and what to say about it.

    Attributes:
        name: in lower case with hyphens, unique among the figures of a run: names the file, and the figure in the page.
        title: a few words.
        caption: what the reader needs to know to read it, with n and split.
        draw: draws it anew at every call.
    """

    name: str
    title: str
    caption: str
    draw: Callable[[], "Figure"]


@dataclass(frozen=True)
class NoFigure:
    """A figure that cannot be drawn from these runs.

    Attributes:
        name: as of the figure.
        reason: one line that ends without a full stop, with the way out if there is one.
    """

    name: str
    reason: str


FigureOrReason = RunFigure | NoFigure
