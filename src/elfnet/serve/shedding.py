"""Load shedding: cheaper operating points while the queue fills up, instead of refused requests."""

import math
import time
from collections.abc import Callable

from elfnet.inference.controller.stepper import Ladder
from elfnet.inference.engine import Engine

LOW_PRESSURE, HIGH_PRESSURE = 0.25, 0.75
"""Filled shares of the queue between which the allowed mean cost falls from that of the point that was set to that of
the cheapest point."""

HALF_LIFE = 1.0
"""Seconds in which the pressure halves. It rises at once and falls slowly, so that the point does not oscillate."""


class LoadShedder:
    """Chooses the operating point of requests that name none.

    The pressure is the filled share of the queue. Up to `LOW_PRESSURE` the point that was set is used. From there to
    `HIGH_PRESSURE` the allowed mean cost falls linearly to that of the cheapest point, and the most accurate
    efficient point within it is used. Requests that name a point or a budget are not affected.

    Args:
        engine: has the operating points.
        chosen_point: returns the operating point that was set; by default that of the engine.
        clock: returns seconds.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        chosen_point: Callable[[], str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine, self._clock = engine, clock
        self._chosen_point = chosen_point or (lambda: engine.operating_point)
        self._ladder = Ladder.of(engine.family)
        self._pressure = 0.0
        self._updated = clock()

    @property
    def pressure(self) -> float:
        """The pressure now, in [0, 1]."""
        return self._pressure * math.pow(0.5, (self._clock() - self._updated) / HALF_LIFE)

    @property
    def point(self) -> str:
        """The operating point that a request gets now."""
        return self._point_at(self.pressure)

    def update(self, queue_fill: float) -> str:
        """Update the pressure with the filled share of the queue; returns the operating point to use."""
        self._pressure, self._updated = max(queue_fill, self.pressure), self._clock()
        return self._point_at(self._pressure)

    def _point_at(self, pressure: float) -> str:
        chosen = self._chosen_point()
        share = min(1.0, max(0.0, (pressure - LOW_PRESSURE) / (HIGH_PRESSURE - LOW_PRESSURE)))
        if share == 0.0:
            return chosen
        full_cost = self._engine.family.point(chosen).expected.mean_cost
        allowed = full_cost - share * (full_cost - self._ladder.mean_cost[0])
        cheaper = [
            name
            for name, cost in zip(self._ladder.names, self._ladder.mean_cost, strict=True)
            if cost <= allowed + 1e-12 and cost < full_cost
        ]
        return cheaper[-1] if cheaper else chosen
