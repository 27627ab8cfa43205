"""Watching a table being filled: which run of how many, its epochs, and the time left."""

from typing import Any

from elfnet.cli.progress import Watch, epoch_line
from elfnet.report.formatting import duration
from elfnet.reproduce.cell import Cell


class TableWatch(Watch):
    """A watcher of `reproduce_table`, for `with`."""

    def __init__(self) -> None:
        super().__init__()
        self._left = ""

    def begins(self, cell: Cell, number: int, runs: int) -> None:
        self.say(f"run {number} of {runs}: {cell.name}")

    def left(self, seconds: float | None) -> None:
        self._left = "" if seconds is None else f"  about {duration(seconds)} left for all"

    def epoch(self, record: dict[str, Any]) -> None:
        self._progress.update(self._bar, completed=record["epoch"] + 1)
        self.say(epoch_line(record, self._epochs) + self._left)

    def ends(self, cell: Cell, failure: str | None) -> None:
        self.say(f"{cell.name}: {'done' if failure is None else f'failed: {failure}'}")
