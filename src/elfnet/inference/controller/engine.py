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
    """The part of an engine that `ControlledEngine` uses."""

    def set_operating_point(self, point: str | float, /) -> object: ...

    def __call__(
        self, images_NKHW: NDArray[np.float32], /, *, operating_point: str | float | None = None
    ) -> Answers: ...


class ControlledEngine:
    """Runs an engine, reports costs or latencies to a controller, and switches to the operating point it chooses.

    Thread-safe. A call runs at the operating point that is set when it begins. If another thread switches the point
    meanwhile, the observations of this call are ignored.

    Args:
        engine: The engine; its operating point follows the controller.
        controller: A controller of cost, latency or battery.
        clock: Time in seconds; used only with a `LatencyController`.

    Example:
        >>> from elfnet import ControlledEngine, CostController, load
        >>> model = load("digits.onnx")
        >>> controller = CostController(model.engine.family, target=0.6)
        >>> engine = ControlledEngine(model.engine, controller)
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
        """Set the engine to the controller's operating point. Call it after `set_battery` or `set_target`."""
        # The lock makes reading and setting one step: no thread can set an older point last.
        with self._lock:
            self._engine.set_operating_point(self.controller.operating_point)

    def __call__(self, images_NKHW: NDArray[np.float32], *, operating_point: str | float | None = None) -> Answers:
        """Classify normalised images; the controller ignores a call with an explicit operating point."""
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
