"""What all figures share: their description before drawing, and their style.

Colours are those of Okabe and Ito. Series that differ in colour also differ in line style, marker or hatching, so that
figures can be read in greyscale. matplotlib is imported when the first figure is drawn, not by importing this module.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from elfnet.errors import RequestError
from elfnet.extras import missing_package
from elfnet.report.formatting import readable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class RunFigure:
    """A figure before it is drawn, for the page and for files.

    Attributes:
        name: lower case with hyphens, unique among the figures of a run; the name of the file.
        title: a few words.
        caption: what the reader needs to understand the figure, with split and number of examples.
        draw: draws a new matplotlib figure at every call.
    """

    name: str
    title: str
    caption: str
    draw: Callable[[], "Figure"]


@dataclass(frozen=True)
class NoFigure:
    """A figure that cannot be drawn from these runs.

    Attributes:
        name: the name that the figure would have.
        reason: one line without a full stop, with the way out if there is one.
    """

    name: str
    reason: str


FigureOrReason = RunFigure | NoFigure

INK = "#1f2429"
MUTED = "#5c6670"
GRID = "#dfe3e7"
PAPER = "#ffffff"
BLUE = "#0072b2"

WIDTH_INCHES = 4.6
"""One column: text of 9 points is readable on a phone and not too large in half a desktop window."""

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


@contextmanager
def figure_style() -> Iterator[Any]:
    """Use our settings on top of matplotlib's defaults, and restore the user's settings afterwards.

    Yields:
        matplotlib's rcParams, which may be changed inside the context.

    Raises:
        RequestError: matplotlib is not installed.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise RequestError(missing_package("drawing figures", "matplotlib")) from error
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        yield matplotlib.rcParams


def styled(draw: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function that draws a figure, so that it runs inside `figure_style`."""

    @wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> T:
        with figure_style():
            return draw(*args, **kwargs)

    return drawn


def new_figure(height_inches: float) -> "Figure":
    """Return an empty figure of one column; it does not use pyplot, which would keep it alive."""
    from matplotlib.figure import Figure

    return Figure(figsize=(WIDTH_INCHES, height_inches), layout="constrained")


@dataclass(frozen=True)
class SeriesStyle:
    """How one series differs from the others."""

    colour: str
    line: Any
    marker: str
    hatch: str


_COLOURS = (BLUE, "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d31")
_LINES: tuple[Any, ...] = ("-", (0, (5, 1.6)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))
_MARKERS = ("s", "v", "P", "X", "<", "*", "h", "p", ">")
# Only lines: as SVG, a pattern of dots is ten times as large as the rest of a figure.
_HATCHES = ("", "////", "----", "xxxx", "\\\\\\\\", "||||", "++++")

GROUP_STYLES = {
    "all": SeriesStyle(INK, "-", "s", ""),
    "many": SeriesStyle(BLUE, (0, (5, 1.6)), "v", ""),
    "medium": SeriesStyle("#e69f00", (0, (6, 1.5, 1.2, 1.5)), "P", "////"),
    "few": SeriesStyle("#d55e00", (0, (1.2, 1.2)), "X", "xxxx"),
}
POINT_MARKERS = {"full": ("D", 6.5), "accurate": ("^", 8.0), "economic": ("o", 5.5)}
"""Marker and size of each chosen operating point."""


def series_style(position: int) -> SeriesStyle:
    """Return the style of the series at a position; colours, lines, markers and hatches have different periods."""
    return SeriesStyle(
        _COLOURS[position % len(_COLOURS)],
        _LINES[position % len(_LINES)],
        _MARKERS[position % len(_MARKERS)],
        _HATCHES[position % len(_HATCHES)],
    )


def label_text(text: object, max_length: int = 40) -> str:
    """Return text for a label: one line, cut if it is too long, with dollar signs escaped from matplotlib."""
    line = " ".join(readable(text).split())
    if len(line) > max_length:
        line = line[: max_length - 1] + "…"
    return line.replace("$", r"\$")


def plain_log_ticks(axis: Any) -> None:
    """Label a logarithmic axis with 0.1, 10, 100 instead of powers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    low, high = axis.get_view_interval()
    if high < 30 * low:  # about one power of ten, where the powers alone would be one or two ticks
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())


def integer_epochs(axes: Any) -> None:
    """Place the ticks of an x axis of epochs at whole numbers."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))


def mark_reweighting(axes: Any, epoch: int | None, *, label: bool = True) -> None:
    """Draw a vertical line where re-weighting starts; nothing if `epoch` is None."""
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


def marker_step(points: int) -> int:
    """Return the step between markers, so that a line has at most about twenty."""
    return max(1, points // 20)
