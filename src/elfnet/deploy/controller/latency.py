"""Hold the 95th percentile of request durations, as inputs or the machine change."""

# Shapes: N requests

import math

from numpy.typing import ArrayLike

from elfnet.calibrate.family import Family
from elfnet.deploy.controller.gauge import TAIL_SHARE, TailLatency
from elfnet.deploy.controller.held_target import ControlState, HeldTarget
from elfnet.deploy.controller.ladder import Ladder
from elfnet.deploy.controller.settings import ControlSettings
from elfnet.errors import RequestError

FEWEST = round(2 / TAIL_SHARE)
"""Requests of a window: fewer have no 95th percentile apart from their largest duration."""


class LatencyController:
    """The dearest efficient operating point whose 95th percentile is within the target.

    The caller measures durations and reports them; there is no clock in here. Durations of other points are predicted
    in proportion to mean costs, which is cautious where requests of one image all take the deepest exit anyway. A
    target that even the cheapest point misses is not an error, as machines get slow for a while:
    `state.out_of_reach` tells it.

    Args:
        family: the operating points with their expected costs.
        target_ms: 95th percentile in milliseconds.
        start: name of the efficient point to begin at; the cheapest by default.
        settings: windows (in requests) and margins.
    """

    def __init__(
        self, family: Family, target_ms: float, *, start: str | None = None, settings: ControlSettings | None = None
    ) -> None:
        settings = settings or ControlSettings()
        if not (math.isfinite(target_ms) and target_ms > 0.0):
            raise RequestError(f"target_ms={target_ms} must be a time above 0 in milliseconds")
        if settings.window < FEWEST:
            raise RequestError(
                f"window={settings.window} requests are too few for a 95th percentile; give {FEWEST} or more"
            )
        ladder = Ladder.of(family)
        if start is not None and family.point(start).name not in ladder.names:
            raise RequestError(
                f"operating point {start!r} is dearer than a more accurate one; start at one of: "
                f"{', '.join(ladder.names)}"
            )
        rung = 0 if start is None else ladder.names.index(start)
        self._held = HeldTarget(ladder, TailLatency(), target_ms, rung, settings)

    @property
    def operating_point(self) -> str:
        """The name of the point in force."""
        return self._held.operating_point

    @property
    def state(self) -> ControlState:
        return self._held.state

    def observe_latency(self, milliseconds: ArrayLike, *, at: str | None = None) -> str | None:
        """Take the durations of one or more requests; the name of the new operating point, if it is time to move."""
        return self._held.observe(milliseconds, at)
