"""All figures of a report, in the order of the page, and writing them as PNG and SVG files."""

import re
import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from elfnet import atomic
from elfnet.errors import WorkError
from elfnet.report.figures.architecture import architecture
from elfnet.report.figures.base import MUTED, PAPER, FigureOrReason, NoFigure, RunFigure, figure_style, label_text
from elfnet.report.figures.classes import accuracy_by_class, class_distribution
from elfnet.report.figures.confusion import confused_images, confusion_figure
from elfnet.report.figures.exits import confidence_in_true_class, exit_shares_at_points, reliability_by_exit
from elfnet.report.figures.gallery import images_by_exit
from elfnet.report.figures.trade_off import (
    accuracy_against_cost,
    accuracy_against_cost_of_runs,
    cost_histogram,
    rarest_common_group,
    threshold_ablation,
)
from elfnet.report.figures.training import (
    exit_shares_over_epochs,
    loss_by_exit,
    loss_by_exit_over_epochs,
    loss_shares_over_epochs,
    training_curves,
)
from elfnet.report.record import RunRecord, read_runs
from elfnet.run.directory import RunDirectory

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox

# Figures of any run, and those of a run with early exits.
RUN_FIGURES: tuple[Callable[[RunRecord], FigureOrReason], ...] = (
    architecture,
    class_distribution,
    confidence_in_true_class,
    accuracy_by_class,
    confusion_figure,
    confused_images,
    reliability_by_exit,
    training_curves,
)
EXIT_FIGURES: tuple[Callable[[RunRecord], FigureOrReason], ...] = (
    accuracy_against_cost,
    exit_shares_at_points,
    cost_histogram,
    loss_by_exit,
    loss_by_exit_over_epochs,
    exit_shares_over_epochs,
    loss_shares_over_epochs,
    images_by_exit,
)


def figures_of_run(record: RunRecord, *, with_images: bool = True) -> Iterator[FigureOrReason]:
    """Yield all figures of one run; a run without early exits has none about exits."""
    for figure in (*RUN_FIGURES, *(() if record.plain else EXIT_FIGURES)):
        if with_images or figure not in (images_by_exit, confused_images):
            yield figure(record)


def figures_of_runs(records: Sequence[RunRecord]) -> Iterator[FigureOrReason]:
    """Yield the figures that compare several runs; none for a single run."""
    if len(records) < 2:
        return
    yield accuracy_against_cost_of_runs(records)
    if (group := rarest_common_group(records)) is not None:
        yield accuracy_against_cost_of_runs(records, group)
    yield threshold_ablation(records)


# Formats with the metadata that is left out: without date and version, the same figure gives the same file.
FORMATS: dict[str, dict[str, None]] = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}
DPI = 200
_CAPTION_SIZE, _TITLE_SIZE = 7.5, 10.0
_CAPTION_CHARACTERS, _TITLE_CHARACTERS = 78, 54
_CAPTION_INCHES, _TITLE_INCHES = 0.135, 0.17


@dataclass(frozen=True)
class WrittenFigures:
    """Result of `write_figures`.

    Attributes:
        files: the written files in the order of the page, each figure as PNG and as SVG.
        left_out: one line per figure that could not be drawn, with the reason.
    """

    files: tuple[Path, ...]
    left_out: tuple[str, ...]


def write_figures(
    runs: Sequence[RunDirectory | str | Path], directory: str | Path, *, with_images: bool = True
) -> WrittenFigures:
    """Write all figures of finished runs as PNG and SVG files.

    Only files of the run directories are read, and the same files give the same bytes. With several runs, files are
    named `RUN-FIGURE`, and figures that compare the runs `FIGURE`.

    Args:
        runs: calibrated run directories.
        directory: where to write; created if it does not exist.
        with_images: draw images of the test split by exit, if the data is on this machine.

    Raises:
        RequestError: a run does not exist, is given twice or has not been calibrated.
        WorkError: files of a run are damaged, or `directory` is a file.
    """
    records = read_runs(runs)
    directory = Path(directory)
    if directory.exists() and not directory.is_dir():
        raise WorkError(f"cannot write figures into {directory}: it is a file; name a directory")
    named: list[tuple[str, FigureOrReason]] = []
    for record in records:
        prefix = f"{_file_name(record.name)}-" if len(records) > 1 else ""
        named += [(f"{prefix}{figure.name}", figure) for figure in figures_of_run(record, with_images=with_images)]
    named += [(figure.name, figure) for figure in figures_of_runs(records)]
    files = [
        file for name, figure in named if isinstance(figure, RunFigure) for file in _write(figure, directory / name)
    ]
    left_out = [f"{name}: {figure.reason}" for name, figure in named if isinstance(figure, NoFigure)]
    return WrittenFigures(tuple(files), tuple(left_out))


def _write(figure: RunFigure, place: Path) -> list[Path]:
    """Draw a figure once and save it in every format."""
    files = []
    with figure_style() as settings, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # in class names
        settings.update({"svg.fonttype": "none", "svg.hashsalt": f"elfnet {figure.name}"})
        drawn = figure.draw()
        paper = _add_title_and_caption(drawn, figure)
        for kind, metadata in FORMATS.items():
            save = partial(drawn.savefig, format=kind, dpi=DPI, facecolor=PAPER, metadata=metadata, bbox_inches=paper)
            files.append(place.with_name(f"{place.name}.{kind}"))
            atomic.write_with(files[-1], save)
    return files


def _add_title_and_caption(drawn: "Figure", figure: RunFigure) -> "Bbox":
    """Write title above and caption below the drawing; return the area that contains all, in inches."""
    from matplotlib.transforms import Bbox

    title = textwrap.wrap(label_text(figure.title, 200), _TITLE_CHARACTERS)
    caption = textwrap.wrap(label_text(figure.caption, 2000), _CAPTION_CHARACTERS)
    width, height = drawn.get_size_inches()
    above, below = 0.12 + _TITLE_INCHES * len(title), 0.12 + _CAPTION_INCHES * len(caption)
    texts = [
        drawn.text(0.02, 1 + 0.05 / height, "\n".join(title), fontsize=_TITLE_SIZE, weight="bold", va="bottom"),
        drawn.text(0.02, -0.04 / height, "\n".join(caption), fontsize=_CAPTION_SIZE, color=MUTED, va="top"),
    ]
    # The layout is computed as for the page and then fixed, so that legends stay at the edge of the drawing.
    for text in texts:
        text.set_in_layout(False)
    drawn.draw_without_rendering()
    drawn.set_layout_engine("none")
    for legend in drawn.legends:
        legend.set_bbox_to_anchor((0, 0, 1, 1), transform=drawn.transFigure)
    return Bbox([[0.0, -below], [width, height + above]])


def _file_name(name: str) -> str:
    """Return the name of a run without characters that file names may not contain, such as slashes."""
    return re.sub(r"[^\w.+-]+", "-", name).strip("-.") or "run"
