"""Watching a run."""

from typing import Any, Protocol

from elfnet.recipe.schema import Recipe


class Observer(Protocol):
    """Who watches a run: a progress bar, plain lines, or nobody."""

    def started(self, recipe: Recipe, info: dict[str, Any], epochs_done: int) -> None: ...

    def step(self, step: int, steps: int) -> None: ...

    def epoch(self, record: dict[str, Any]) -> None: ...


class Silent:
    """Nobody watches."""

    def started(self, recipe: Recipe, info: dict[str, Any], epochs_done: int) -> None:
        pass

    def step(self, step: int, steps: int) -> None:
        pass

    def epoch(self, record: dict[str, Any]) -> None:
        pass
