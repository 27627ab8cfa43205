"""The report: one self-contained HTML file about finished runs."""

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from elfnet import atomic
from elfnet.errors import WorkError
from elfnet.report.html import asset, render
from elfnet.report.record import RunRecord, read_runs
from elfnet.report.sections.comparison import comparison_section
from elfnet.report.sections.run import run_section
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
        >>> write_report(["runs/first"])  # doctest: +SKIP
        PosixPath('runs/first/report.html')
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
