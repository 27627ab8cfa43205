"""Progress of file prediction on standard error: a bar on a terminal, plain lines elsewhere."""

import sys
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn


class FileProgress:
    """Progress of predictions for image files; a context manager.

    The total is unknown, because folders and lists are read while predictions are made.

    Args:
        shown: whether to show the bar; False if the predictions themselves go to the terminal.
    """

    def __init__(self, *, shown: bool) -> None:
        self._progress = Progress(
            TextColumn("{task.completed:,} images"),
            BarColumn(),
            TextColumn("{task.fields[failed]} not read"),
            TimeElapsedColumn(),
            console=Console(stderr=True, highlight=False),
            disable=not (shown and sys.stderr.isatty()),
            transient=True,
        )
        self._failed = 0
        self._bar = self._progress.add_task("", total=None, failed=0)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def step(self) -> None:
        """Count one more image."""
        self._progress.update(self._bar, advance=1, failed=self._failed)

    def complain(self, reason: str) -> None:
        """Print why a file was not read, on one line and without control characters."""
        self._failed += 1
        line = "".join(character if character.isprintable() else "?" for character in " ".join(reason.split()))
        if self._progress.disable:
            sys.stderr.write(f"elfnet: {line}\n")
            sys.stderr.flush()
        else:
            self._progress.console.print(f"elfnet: {line}", markup=False, soft_wrap=True)
