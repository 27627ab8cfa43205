"""The report: one self-contained HTML file about finished runs, and the section that compares several of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from elfnet import atomic
from elfnet.data.long_tail import GROUP_NAMES
from elfnet.errors import RequestError, WorkError
from elfnet.evaluate.bootstrap import Difference
from elfnet.report import formatting as fmt
from elfnet.report.figures.base import RunFigure
from elfnet.report.figures.catalogue import figures_of_runs
from elfnet.report.html import Cell, FigureGrid, Heading, Table, asset, render
from elfnet.report.record import RunRecord, read_runs
from elfnet.report.sections.run import run_section
from elfnet.report.sections.slider import Slider, budget_slider
from elfnet.report.summary import compare_at_full_depth
from elfnet.report.svg import figure_grid
from elfnet.run.directory import RunDirectory

# Each file is one block, so that their constants do not collide.
SCRIPTS = ("sort_tables.js", "slider.js", "print_details.js")


def write_report(
    runs: Sequence[RunDirectory | str | Path], out: str | Path | None = None, *, with_images: bool = True
) -> Path:
    """Write one self-contained HTML file about finished runs.

    Only files of the run directories are read, and the same files give the same bytes.

    Args:
        runs: calibrated run directories; the others are compared with the first.
        out: the file to write; report.html in the first run's directory by default.
        with_images: show images of the test split by exit, if the data is on this machine.

    Returns:
        The file that was written.

    Raises:
        RequestError: a run does not exist, is given twice or has not been calibrated.
        WorkError: files of a run are damaged, or the report cannot be written.

    Example:
        >>> from elfnet import open_run, write_report
        >>> write_report([open_run("runs/first")], with_images=False).name
        'report.html'
    """
    records = read_runs(runs)
    first = runs[0]
    directory = first if isinstance(first, RunDirectory) else RunDirectory(Path(first))
    file = directory.report_file if out is None else Path(out)
    if file.is_dir():
        raise WorkError(
            f"cannot write the report to {file}: it is a directory; name a file, such as {file}/report.html"
        )
    atomic.write_text(file, page(records, with_images=with_images))
    return file


def page(records: Sequence[RunRecord], *, with_images: bool = True) -> str:
    """Return the HTML of the report; it does not depend on date or time."""
    several = len(records) > 1
    runs = [
        run_section(record, f"run-{number}", with_images=with_images) for number, record in enumerate(records, start=1)
    ]
    return render(
        "report.html",
        title=f"{len(records)} runs compared" if several else runs[0].title,
        comparison=comparison_section(records) if several else None,
        runs=runs,
        script=Markup("").join(asset(name) for name in SCRIPTS),
    )


@dataclass(frozen=True)
class ComparisonSection:
    """The part of the page that compares runs.

    Attributes:
        first: name of the run that the others are compared with.
        differences: to the first run; None if no run can be compared with it.
        not_compared: one sentence per run that cannot be compared with the first.
    """

    first: str
    table: Table
    slider: Slider | None
    figures: FigureGrid
    differences: Table | None
    not_compared: tuple[str, ...]


def comparison_section(records: Sequence[RunRecord]) -> ComparisonSection:
    """Compare runs; the first one is the reference."""
    differences, not_compared = _differences(records)
    # An ablation that cannot be drawn needs no explanation: most comparisons are none.
    figures = [figure for figure in figures_of_runs(records) if isinstance(figure, RunFigure)]
    return ComparisonSection(
        first=records[0].name,
        table=_table(records),
        slider=budget_slider(records, "together"),
        figures=figure_grid("together", *figures),
        differences=differences,
        not_compared=not_compared,
    )


def _table(records: Sequence[RunRecord]) -> Table:
    headings = [
        Heading("run", numeric=False),
        Heading("method", numeric=False),
        *(Heading(name, "full depth") for name in ("all", *GROUP_NAMES, "cost")),
        *(Heading(name, point) for point in ("accurate", "economic") for name in ("all", "cost")),
        Heading("increasing loss", numeric=False),
        Heading("training"),
    ]
    caption = (
        f"Accuracy in % on the test split of each run. {records[0].cost_note} A dash means no examples, or no early "
        f"exits."
    )
    rows = [_row(number, record) for number, record in enumerate(records, start=1)]
    return Table(headings=headings, rows=rows, caption=caption)


def _row(number: int, record: RunRecord) -> list[Cell | str]:
    full = record.at("full")
    early: list[str] = []
    for name in ("accurate", "economic"):
        point = None if record.plain else record.at(name)
        early += [fmt.percent(point.accuracy), fmt.cost(point.mean_cost)] if point else [fmt.DASH, fmt.DASH]
    data = record.recipe.data
    ratio = "" if data.profile in ("none", "counts") else f", ratio {data.ratio:g}"
    network = record.network + ("" if record.plain else f", {record.exits} exits")
    return [
        Cell(record.name, link=f"#run-{number}", detail=f"{network}; {data.source}{ratio}; test n = {full.n:,}"),
        record.method,
        fmt.percent(full.accuracy),
        *(fmt.percent(full.accuracy_by_group[group]) for group in GROUP_NAMES),
        fmt.cost(full.mean_cost),
        *early,
        record.epochs[-1].increasing_loss if record.epochs and not record.plain else fmt.DASH,
        fmt.duration(sum(epoch.seconds for epoch in record.epochs)) if record.epochs else fmt.DASH,
    ]


def _differences(records: Sequence[RunRecord]) -> tuple[Table | None, tuple[str, ...]]:
    first, *others = records
    names = ("all", *GROUP_NAMES, "balanced")
    headings = [
        Heading("run", numeric=False),
        *(Heading(name, "difference in points [95 % interval]") for name in names),
    ]
    rows: list[list[Cell | str]] = []
    not_compared: list[str] = []
    resamples = 0
    for record in others:
        try:
            comparison = compare_at_full_depth(first, record)
        except RequestError as error:
            not_compared.append(f"{record.name} is not compared: {error}.")
            continue
        resamples = comparison.resamples
        rows.append([record.name, *(_difference(comparison.differences[name]) for name in names)])
    if not rows:
        return None, tuple(not_compared)
    caption = (
        f"Against {first.name} at full depth, on the same n = {first.results.n:,} {first.results.split} examples: "
        f"paired bootstrap with {resamples:,} resamples. Bold: the interval excludes 0. It covers the choice of test "
        f"images, not the training seed."
    )
    return Table(headings=headings, rows=rows, caption=caption), tuple(not_compared)


def _difference(difference: Difference | None) -> Cell | str:
    if difference is None:
        return fmt.DASH
    return Cell(
        fmt.signed_points(difference.estimate),
        difference.estimate,
        bold=difference.low > 0 or difference.high < 0,
        interval=f"[{fmt.signed_points(difference.low)}, {fmt.signed_points(difference.high)}]",
    )
