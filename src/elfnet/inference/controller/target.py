"""Settings and state of a controller, and the logic that cost and latency controllers share.

Observations are collected in windows. After each window the logic tests for overload and for a change of the input
mix, and decides about a move, under one lock.
"""

# Shapes: N examples (or requests) of a call or a window

import math
from dataclasses import dataclass
from threading import Lock

import numpy as np
from numpy.typing import ArrayLike

from elfnet.errors import RequestError
from elfnet.inference.controller.detectors import Gauge, MixChange, Overload, Values
from elfnet.inference.controller.ladder import Ladder, Stepper, highest_within


@dataclass(frozen=True, kw_only=True)
class ControlSettings:
    """Settings of every controller.

    Attributes:
        window: Examples (or requests, for latency) between two decisions.
        dead_band: Relative excess over the target that is tolerated.
        far_off: Relative distance from the target from which one move may cross several operating points.
        false_alarm: Probability that a change is ever detected in a stream whose mix never changes.
    """

    window: int = 256
    dead_band: float = 0.03
    far_off: float = 0.2
    false_alarm: float = 0.01

    def __post_init__(self) -> None:
        if self.window < 2:
            raise RequestError(
                f"window={self.window} is too short to tell noise from drift; give at least 2, such as 256"
            )
        if not (math.isfinite(self.dead_band) and self.dead_band >= 0.0):
            raise RequestError(f"dead_band={self.dead_band} must be 0 or more, such as 0.03")
        if not self.far_off >= self.dead_band:
            raise RequestError(
                f"far_off={self.far_off} lies within dead_band={self.dead_band}; give a larger far_off, such as 0.2"
            )
        if not 0.0 < self.false_alarm < 1.0:
            raise RequestError(f"false_alarm={self.false_alarm} must be a probability above 0 and below 1")


@dataclass(frozen=True, kw_only=True)
class ControlState:
    """State of a controller, for logs and monitoring.

    Attributes:
        operating_point: Name of the present operating point.
        target: The value to hold.
        observed: Mean cost or 95th percentile over the last windows at this point; None before the first full window.
        windows: Number of decisions so far.
        moves: Number of changes of the operating point so far.
        changes: Number of detected changes of the input mix so far.
        wait: Windows that must pass after a move down to this point before the next move up; doubles after each move
            up that was reversed.
        out_of_reach: Whether the target is missed even at the cheapest point.
    """

    operating_point: str
    target: float
    observed: float | None
    windows: int
    moves: int
    changes: int
    wait: int
    out_of_reach: bool


RECENT = 4
"""Windows used to predict the other rungs: few, to follow a drift; more than one, to average out noise."""


class TargetTracker:
    """Chooses the rung that holds a target. Thread-safe and deterministic: equal observations give equal moves."""

    def __init__(self, ladder: Ladder, gauge: Gauge, target: float, start: int, settings: ControlSettings) -> None:
        self._ladder, self._gauge, self._target, self._settings = ladder, gauge, target, settings
        self._stepper = Stepper(len(ladder), start, far_off=settings.far_off)
        self._mix = MixChange(len(ladder), settings.false_alarm)
        self._overload = Overload()
        self._open_window: list[Values] = []
        self._recent: list[Values] = []
        self._windows = self._changes = 0
        self._last_seen: tuple[float, int] | None = None
        self._out_of_reach = False
        self._lock = Lock()

    @property
    def operating_point(self) -> str:
        """Name of the present operating point."""
        return self._ladder.names[self._stepper.rung]

    @property
    def state(self) -> ControlState:
        """Snapshot for logs and monitoring."""
        with self._lock:
            return ControlState(
                operating_point=self.operating_point,
                target=self._target,
                observed=self._observed(),
                windows=self._windows,
                moves=self._stepper.moves,
                changes=self._changes,
                wait=self._stepper.wait,
                out_of_reach=self._out_of_reach,
            )

    def observe(self, observed: ArrayLike, at: str | None) -> str | None:
        """Add values, and decide when a window is full.

        Args:
            observed: Costs or latencies, one or many.
            at: The operating point at which they were observed; None for the present one. Values of another point are
                ignored: they come from calls that were running during a move.

        Returns:
            The name of the new operating point if it changes, else None.
        """
        observed_N = np.atleast_1d(np.asarray(observed, dtype=np.float64)).ravel()
        wrong_N = ~(np.isfinite(observed_N) & (observed_N >= 0.0))
        if wrong_N.any():
            raise RequestError(f"observed value {observed_N[wrong_N][0]:g} must be a finite number of 0 or more")
        with self._lock:
            if at is not None and at != self.operating_point:
                return None
            self._open_window.append(observed_N)
            if sum(map(len, self._open_window)) < self._settings.window:
                return None
            window_N = np.concatenate(self._open_window)
            self._open_window = []
            return self.operating_point if self._decide(window_N) else None

    def set_target(self, target: float) -> str | None:
        """Set another target, and return the name of the new operating point if it changes, else None."""
        with self._lock:
            self._target = target
            before = self._stepper.rung
            value, at = self._last_seen or (self._ladder.mean_cost[before], before)
            self._stepper.jump(highest_within(self._gauge.predicted(self._ladder, value, at), target))
            # Earlier windows were compared with another limit.
            self._clear_windows()
            return self.operating_point if self._stepper.rung != before else None

    def _decide(self, window_N: Values) -> bool:
        self._windows += 1
        target, rung = self._target, self._stepper.rung
        if self._mix.add(rung, self._gauge.mix(window_N, target)):
            self._changes += 1
            self._stepper.new_phase()
            self._clear_windows()
        limit = target * (1.0 + self._settings.dead_band)
        self._overload.add(self._gauge.overload(window_N, limit))
        self._recent = [*self._recent, window_N][-RECENT:]
        value = self._gauge.value(np.concatenate(self._recent))
        self._last_seen = value, rung
        overloaded = self._overload.exceeds(self._gauge.allowed(limit))
        self._out_of_reach = overloaded and rung == 0
        predicted = self._gauge.predicted(self._ladder, value, rung)
        moved = self._stepper.decide(overloaded=overloaded, value=value, predicted=predicted, target=target)
        if moved:
            self._clear_windows()
        return moved

    def _observed(self) -> float | None:
        return self._gauge.value(np.concatenate(self._recent)) if self._recent else None

    def _clear_windows(self) -> None:
        self._overload.clear()
        self._recent, self._open_window = [], []
