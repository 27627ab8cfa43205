"""Progress of long work: a bar and lines above it on a terminal, elsewhere only lines on standard error."""

import sys
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import Progress, ProgressColumn


class ProgressDisplay:
    """A progress bar on standard error; a context manager.

    Args:
        columns: parts of the bar.
        shown: whether to show it on a terminal.
        transient: whether it disappears at the end.
    """

    def __init__(self, *columns: ProgressColumn, shown: bool = True, transient: bool = False) -> None:
        self._progress = Progress(
            *columns,
            console=Console(stderr=True, highlight=False),
            disable=not (shown and sys.stderr.isatty()),
            transient=transient,
        )

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def say(self, line: str) -> None:
        """Print one line, above the bar if there is one."""
        if self._progress.disable:
            sys.stderr.write(line + "\n")
            sys.stderr.flush()
        else:
            self._progress.console.print(line, markup=False, soft_wrap=True)
