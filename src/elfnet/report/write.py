"""Writing the report."""

from collections.abc import Sequence
from pathlib import Path

from elfnet import atomic
from elfnet.checkpoint.run_directory import RunDirectory
from elfnet.errors import WorkError
from elfnet.report.page import page
from elfnet.report.record import read_runs


def write_report(
    runs: Sequence[RunDirectory | str | Path], out: str | Path | None = None, *, with_images: bool = True
) -> Path:
    """One self-contained HTML file about finished runs, from their files only; the same files give the same bytes.

    Args:
        runs: run directories that have been calibrated; the others are compared with the first.
        out: the file to write; report.html in the first run's directory by default.
        with_images: show images of the test split by the exit they take, where the data is on this machine.

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
