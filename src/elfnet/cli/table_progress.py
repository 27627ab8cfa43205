"""Progress of `elfnet reproduce`: which run of how many, its epochs, and the remaining time."""

from typing import Any

from elfnet.report.formatting import duration
from elfnet.reproduce.cell import Cell
from elfnet.train.progress import Watch, epoch_line


class TableProgress(Watch):
    """A `TableObserver` that prints to standard error; use it in a `with` statement."""

    def __init__(self) -> None:
        super().__init__()
        self._remaining = ""

    def run_started(self, cell: Cell, number: int, runs: int) -> None:
        self.say(f"run {number} of {runs}: {cell.name}")

    def remaining(self, seconds: float | None) -> None:
        self._remaining = "" if seconds is None else f"  about {duration(seconds)} left for all runs"

    def epoch(self, record: dict[str, Any]) -> None:
        self._finish_epoch(record)
        self.say(epoch_line(record, self._epochs) + self._remaining)

    def run_finished(self, cell: Cell, failure: str | None) -> None:
        self.say(f"{cell.name}: {'done' if failure is None else f'failed: {failure}'}")
