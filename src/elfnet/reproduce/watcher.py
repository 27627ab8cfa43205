"""Watching a table being filled."""

from typing import Any, Protocol

from elfnet.recipe.schema import Recipe
from elfnet.recipe.stages import total_epochs
from elfnet.reproduce.cell import Cell
from elfnet.reproduce.time_left import Pace, seconds_left
from elfnet.train.logging import Observer, Silent
from elfnet.train.refit import is_fitted


class Watcher(Observer, Protocol):
    """Who watches: told of every run, and within each of every epoch."""

    def begins(self, cell: Cell, number: int, runs: int) -> None:
        """Run `number` of `runs` begins."""

    def left(self, seconds: float | None) -> None:
        """About so long to the end of all that is asked for, told before what it follows from; None: not known yet."""

    def ends(self, cell: Cell, failure: str | None) -> None:
        """A run has ended, with the reason if it failed."""


class Nobody(Silent):
    """Nobody watches."""

    def begins(self, cell: Cell, number: int, runs: int) -> None:
        pass

    def left(self, seconds: float | None) -> None:
        pass

    def ends(self, cell: Cell, failure: str | None) -> None:
        pass


class Timed:
    """The observer of one run: passes on what it sees, and measures the pace.

    Args:
        after: the runs that come after this one, with their epochs.
    """

    def __init__(self, watcher: Watcher, pace: Pace, cell: Cell, after: list[tuple[Cell, int]]) -> None:
        self._watcher, self._pace, self._cell, self._after = watcher, pace, cell, after
        self._epochs = 0

    def started(self, recipe: Recipe, info: dict[str, Any], epochs_done: int) -> None:
        self._epochs = 0 if is_fitted(recipe) else total_epochs(recipe)
        self._tell(max(0, self._epochs - epochs_done))
        self._watcher.started(recipe, info, epochs_done)

    def step(self, step: int, steps: int) -> None:
        self._watcher.step(step, steps)

    def epoch(self, record: dict[str, Any]) -> None:
        self._pace.add(self._cell, record["seconds"])
        self._tell(self._epochs - record["epoch"] - 1)
        self._watcher.epoch(record)

    def _tell(self, epochs_left: int) -> None:
        self._watcher.left(seconds_left(self._pace, [(self._cell, epochs_left), *self._after]))
