"""An engine whose operating point a controller chooses."""

# Shapes: N examples of a call, K channels, H height, W width

import time
from collections.abc import Callable
from threading import Lock
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from elfnet.inference.controller.controllers import BatteryController, CostController, LatencyController
from elfnet.inference.engine import Answers


class Adjustable(Protocol):
    """What is asked of an engine."""

    def set_operating_point(self, point: str | float, /) -> object: ...

    def __call__(
        self, images_NKHW: NDArray[np.float32], /, *, operating_point: str | float | None = None
    ) -> Answers: ...


class ControlledEngine:
    """Calls the engine, tells the controller what it cost, and sets the operating point that it asks for.

    Any number of threads may call. A call runs at the point in force when it began; what it reports after a move by
    another thread is left out, as it was seen at the old point.

    Args:
        engine: stays usable by itself; its operating point follows the controller.
        controller: of cost, latency or battery.
        clock: seconds; only read for a latency controller, around the engine's call.
    """

    def __init__(
        self,
        engine: Adjustable,
        controller: CostController | LatencyController | BatteryController,
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._engine, self.controller, self._clock = engine, controller, clock
        self._lock = Lock()
        self.follow()

    def follow(self) -> None:
        """Set the engine to the controller's point; needed by hand only after `set_battery` or `set_target`."""
        # Under the lock the point is read and set in one step: two threads cannot set an older one last.
        with self._lock:
            self._engine.set_operating_point(self.controller.operating_point)

    def __call__(self, images_NKHW: NDArray[np.float32], *, operating_point: str | float | None = None) -> Answers:
        """Classify normalised images; a call with an operating point of its own is not the controller's business."""
        if operating_point is not None:
            return self._engine(images_NKHW, operating_point=operating_point)
        point = self.controller.operating_point
        began = self._clock() if isinstance(self.controller, LatencyController) else 0.0
        answers = self._engine(images_NKHW, operating_point=point)
        if len(answers.cost_N) == 0:
            return answers
        if isinstance(self.controller, LatencyController):
            moved = self.controller.observe_latency((self._clock() - began) * 1000.0, at=point)
        else:
            moved = self.controller.observe(answers.cost_N, at=point)
        if moved is not None:
            self.follow()
        return answers
