"""Under pressure, cheaper answers instead of refusals; back to the chosen point when it is over."""

import math
import time
from collections.abc import Callable

from elfnet.deploy.controller.ladder import Ladder
from elfnet.deploy.engine import Engine

FROM, FULLY = 0.25, 0.75
"""Shares of the queue between which the mean cost falls from the chosen point's to the cheapest point's."""

HALF_LIFE = 1.0
"""Seconds in which felt pressure halves: it rises at once and falls slowly, so that the point does not flutter."""


class Shedding:
    """Chooses the point for requests that ask for none.

    The queue's fullness p moves the allowed mean cost on a line: chosen point at p <= FROM, cheapest at p >= FULLY. The
    most accurate efficient point within it is taken. A request that names its point or budget gets it all the same.

    Args:
        engine: its operating point is the chosen one, and is never changed here.
        clock: seconds.
    """

    def __init__(self, engine: Engine, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._engine, self._clock = engine, clock
        self._ladder = Ladder.of(engine.family)
        self._pressure = 0.0
        self._felt = clock()

    @property
    def pressure(self) -> float:
        """What is felt now, in [0, 1]."""
        return self._pressure * math.pow(0.5, (self._clock() - self._felt) / HALF_LIFE)

    @property
    def point(self) -> str:
        """The point that a request would get now."""
        return self._at(self.pressure)

    def feel(self, full_share: float) -> str:
        """Take note of how full the queue is; the point to use."""
        self._pressure, self._felt = max(full_share, self.pressure), self._clock()
        return self._at(self._pressure)

    def _at(self, pressure: float) -> str:
        chosen = self._engine.operating_point
        share = min(1.0, max(0.0, (pressure - FROM) / (FULLY - FROM)))
        if share == 0.0:
            return chosen
        dearest = self._engine.family.point(chosen).expected.mean_cost
        allowed = dearest - share * (dearest - self._ladder.mean_cost[0])
        cheaper = [
            name
            for name, cost in zip(self._ladder.names, self._ladder.mean_cost, strict=True)
            if cost <= allowed + 1e-12 and cost < dearest
        ]
        return cheaper[-1] if cheaper else chosen
