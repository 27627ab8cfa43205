"""The machinery that cost and latency controllers share: windows, evidence, detection and moves, under one lock."""

# Shapes: N examples (or requests) of a call

import math
from dataclasses import dataclass
from threading import Lock

import numpy as np
from numpy.typing import ArrayLike

from elfnet.errors import RequestError
from elfnet.inference.controller.detectors import Gauge, MixChange, Overload, Values
from elfnet.inference.controller.stepper import Ladder, Stepper, highest_within


@dataclass(frozen=True, kw_only=True)
class ControlSettings:
    """Settings that every controller shares.

    Attributes:
        window: examples (or requests, for latency) between two decisions.
        dead_band: how far above the target, relative to it, is still taken for the target.
        far_off: from this relative distance on, several rungs are taken in one move.
        false_alarm: probability that a stream whose mix never changes is ever taken for a changed one.
    """

    window: int = 256
    dead_band: float = 0.03
    far_off: float = 0.2
    false_alarm: float = 0.01

    def __post_init__(self) -> None:
        if self.window < 2:
            raise RequestError(f"window={self.window} is too short to tell noise from drift; give 2 or more, say 256")
        if not (math.isfinite(self.dead_band) and self.dead_band >= 0.0):
            raise RequestError(f"dead_band={self.dead_band} must be 0 or more, such as 0.03")
        if not self.far_off >= self.dead_band:
            raise RequestError(
                f"far_off={self.far_off} lies within dead_band={self.dead_band}; give a larger far_off, such as 0.2"
            )
        if not 0.0 < self.false_alarm < 1.0:
            raise RequestError(f"false_alarm={self.false_alarm} must be a probability above 0 and below 1")


RECENT = 4
"""Windows whose values predict the other rungs: few, to follow a drift; more than one, against noise."""


@dataclass(frozen=True, kw_only=True)
class ControlState:
    """What a controller is doing, for logs and monitors.

    Attributes:
        operating_point: the name in force.
        target: what is held.
        observed: mean cost or 95th percentile over the last windows at this point; None before the first is full.
        windows: decisions taken so far.
        moves: changes of the operating point so far.
        changes: detected changes of the input mix so far.
        wait: windows between a move down from the next point and the next try of it; doubles with each failed try.
        out_of_reach: the target is missed at the cheapest point: nothing is left to do.
    """

    operating_point: str
    target: float
    observed: float | None
    windows: int
    moves: int
    changes: int
    wait: int
    out_of_reach: bool


class HeldTarget:
    """A pure state machine: the same observations give the same moves. Thread-safe."""

    def __init__(self, ladder: Ladder, gauge: Gauge, target: float, start: int, settings: ControlSettings) -> None:
        self._ladder, self._gauge, self._target, self._settings = ladder, gauge, target, settings
        self._stepper = Stepper(len(ladder), start, far_off=settings.far_off)
        self._mix = MixChange(len(ladder), settings.false_alarm)
        self._overload = Overload()
        self._filling: list[Values] = []
        self._recent: list[Values] = []
        self._windows = self._changes = 0
        self._last_seen: tuple[float, int] | None = None
        self._out_of_reach = False
        self._lock = Lock()

    @property
    def operating_point(self) -> str:
        """The name of the point in force."""
        return self._ladder.names[self._stepper.rung]

    @property
    def state(self) -> ControlState:
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
        """Take values seen at operating point `at` (None: the present one); the name of a new point, if it moves.

        Values of another point than the present one say nothing about it: those of calls that were under way during
        a move are left out.
        """
        observed_N = np.atleast_1d(np.asarray(observed, dtype=np.float64)).ravel()
        wrong_N = ~(np.isfinite(observed_N) & (observed_N >= 0.0))
        if wrong_N.any():
            raise RequestError(f"observed {observed_N[wrong_N][0]:g}; give numbers of 0 or more")
        with self._lock:
            if at is not None and at != self.operating_point:
                return None
            self._filling.append(observed_N)
            if sum(map(len, self._filling)) < self._settings.window:
                return None
            window_N = np.concatenate(self._filling)
            self._filling = []
            return self.operating_point if self._decide(window_N) else None

    def set_target(self, target: float) -> str | None:
        """Hold something else from now on; the name of the new point, if it moves."""
        with self._lock:
            self._target = target
            before = self._stepper.rung
            value, at = self._last_seen or (self._ladder.mean_cost[before], before)
            self._stepper.jump(highest_within(self._gauge.predicted(self._ladder, value, at), target))
            # What was above or below the limit is another question now.
            self._forget_stay()
            return self.operating_point if self._stepper.rung != before else None

    def _decide(self, window_N: Values) -> bool:
        self._windows += 1
        target, rung = self._target, self._stepper.rung
        if self._mix.add(rung, self._gauge.mix(window_N, target)):
            self._changes += 1
            self._stepper.new_phase()
            self._forget_stay()
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
            self._forget_stay()
        return moved

    def _observed(self) -> float | None:
        return self._gauge.value(np.concatenate(self._recent)) if self._recent else None

    def _forget_stay(self) -> None:
        self._overload.clear()
        self._recent, self._filling = [], []
