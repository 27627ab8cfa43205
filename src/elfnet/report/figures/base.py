"""What all figures share: their description before drawing, and their style.

Colours are those of Okabe and Ito; series that differ in colour also differ in line style, marker or hatching, so that
figures can be read in greyscale. matplotlib is imported when the first figure is drawn, not by importing this module.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from elfnet.errors import RequestError
from elfnet.report.formatting import readable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK = "#1f2429"
MUTED = "#5c6670"
GRID = "#dfe3e7"
PAPER = "#ffffff"
BLUE = "#0072b2"

WIDTH_INCHES = 4.6
"""One column: at 9 points the text is readable on a phone, and not too large in half a desktop window."""

_STYLE: dict[str, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": MUTED,
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.labelsize": 9,
    "axes.linewidth": 0.8,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 9,
    "axes.titlecolor": INK,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "font.size": 9,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "hatch.linewidth": 0.8,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "legend.handlelength": 2.6,
    "legend.labelcolor": INK,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "text.color": INK,
    "xtick.color": MUTED,
    "xtick.labelcolor": INK,
    "xtick.labelsize": 8.5,
    "ytick.color": MUTED,
    "ytick.labelcolor": INK,
    "ytick.labelsize": 8.5,
}

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Look:
    """How one series is told from the others."""

    colour: str
    line: Any
    marker: str
    hatch: str


_COLOURS = (BLUE, "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d31")
_LINES: tuple[Any, ...] = ("-", (0, (5, 1.6)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))
_MARKERS = ("s", "v", "P", "X", "<", "*", "h", "p", ">")
# Of lines only: a pattern of dots is ten times the size of all else in a figure.
_HATCHES = ("", "////", "----", "xxxx", "\\\\\\\\", "||||", "++++")

GROUP_LOOKS = {
    "all": Look(INK, "-", "s", ""),
    "many": Look(BLUE, (0, (5, 1.6)), "v", ""),
    "medium": Look("#e69f00", (0, (6, 1.5, 1.2, 1.5)), "P", "////"),
    "few": Look("#d55e00", (0, (1.2, 1.2)), "X", "xxxx"),
}
POINT_MARKERS = {"full": ("D", 6.5), "accurate": ("^", 8.0), "economic": ("o", 5.5)}


def look(position: int) -> Look:
    """The look of the series at a position; colours, lines, markers and hatches repeat at different lengths."""

    def pick(choices: Sequence[T]) -> T:
        return choices[position % len(choices)]

    return Look(pick(_COLOURS), pick(_LINES), pick(_MARKERS), pick(_HATCHES))


@contextmanager
def house_style() -> Iterator[Any]:
    """Our settings on top of matplotlib's own defaults, to be changed inside; the user's are back afterwards."""
    try:
        import matplotlib
    except ImportError as error:
        raise RequestError(
            "figures are drawn with matplotlib, which is not installed; run: pip install 'elfnet[train]'"
        ) from error
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        yield matplotlib.rcParams


def in_house_style(draw: Callable[P, T]) -> Callable[P, T]:
    """For functions that draw a figure."""

    @wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> T:
        with house_style():
            return draw(*args, **kwargs)

    return drawn


def new_figure(height_inches: float) -> "Figure":
    """A figure of its own: no pyplot, which would keep it alive."""
    from matplotlib.figure import Figure

    return Figure(figsize=(WIDTH_INCHES, height_inches), layout="constrained")


def literal(text: object, longest: int = 40) -> str:
    """Text that matplotlib shows as it is: dollars are no mathematics, and it stays on one line."""
    line = " ".join(readable(text).split())
    if len(line) > longest:
        line = line[: longest - 1] + "…"
    return line.replace("$", r"\$")


def plain_numbers(axis: Any) -> None:
    """Ticks of a logarithmic axis as 0.1, 10, 100 instead of powers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    low, high = axis.get_view_interval()
    if high < 30 * low:  # about one power of ten: the powers alone would be a tick or two
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())


def whole_epochs(axes: Any) -> None:
    """An x axis of epochs: ticks at whole numbers."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))


def mark_switch(axes: Any, epoch: int | None, *, label: bool = True) -> None:
    """A vertical line where re-weighting begins."""
    if epoch is None:
        return
    axes.axvline(epoch - 0.5, color=INK, linewidth=1.1, linestyle=(0, (4, 3)))
    if label:
        axes.annotate(
            "re-weighting from here",
            (epoch - 0.5, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(-3, -2),
            textcoords="offset points",
            ha="right",
            va="top",
            fontsize=8,
            color=MUTED,
        )


def mark_every(points: int) -> int:
    """Markers on at most about twenty of the points of a line, on all of a short one."""
    return max(1, points // 20)


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
