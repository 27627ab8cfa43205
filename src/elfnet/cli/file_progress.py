"""Watching files go by: a bar on a terminal, nothing in a pipe. Complaints are lines on standard error in both."""

import sys
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn


class FileProgress:
    """For `with`. The number of files is not known before the last: folders and lists are read as they come.

    Args:
        shown: False where the results themselves go to the terminal.
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
        self._progress.update(self._bar, advance=1, failed=self._failed)

    def complain(self, reason: str) -> None:
        """One line, whatever a file's name holds."""
        self._failed += 1
        line = "".join(character if character.isprintable() else "?" for character in " ".join(reason.split()))
        if self._progress.disable:
            sys.stderr.write(f"elfnet: {line}\n")
            sys.stderr.flush()
        else:
            self._progress.console.print(f"elfnet: {line}", markup=False, soft_wrap=True)
