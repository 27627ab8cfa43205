"""Controllers that hold a mean cost, a 95th percentile of latency, or a budget given by the battery level.

A controller gets observations and returns the name of the operating point to switch to. It has no clock, reads no
label and does not touch the engine; `ControlledEngine` connects the two.
"""

# Shapes: N examples per call, K channels, H height, W width

import math
import time
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from elfnet.calibrate.point_family import Family
from elfnet.errors import RequestError
from elfnet.inference.controller.detectors import TAIL_SHARE, MeanCost, TailLatency
from elfnet.inference.controller.ladder import Ladder, highest_within
from elfnet.inference.controller.target import ControlSettings, ControlState, TargetTracker
from elfnet.inference.engine import Answers

MIN_LATENCY_WINDOW = round(2 / TAIL_SHARE)
"""Smallest window in requests: in a smaller one the 95th percentile hardly differs from the maximum."""


class CostController:
    """Holds a mean cost, although the inputs may become harder or easier.

    Chooses the most expensive efficient operating point whose mean cost on the present inputs is within the target.
    The module `ladder` bounds the number of switches.

    Args:
        family: The operating points with their expected costs.
        target: Mean cost in the family's unit, between the expected cost of the cheapest point and the worst-case cost
            of the most expensive one.
        settings: Windows and margins.

    Example:
        controller = CostController(family, 0.6)
        answers = engine(images)
        name = controller.observe(answers.cost_N)
        if name is not None:
            engine.set_operating_point(name)

    Example:
        >>> from elfnet import CostController, load
        >>> family = load("digits.onnx").engine.family
        >>> CostController(family, target=0.6).operating_point in family.names()
        True
    """

    def __init__(self, family: Family, target: float, settings: ControlSettings | None = None) -> None:
        self._ladder = Ladder.of(family)
        self._ladder.require_cost(target)
        self._largest = family.cost[-1]  # every stage and every head
        start = highest_within(self._ladder.mean_cost, target)
        gauge = MeanCost(family.cost[0] - family.head_cost[0], self._largest)
        self._tracker = TargetTracker(self._ladder, gauge, target, start, settings or ControlSettings())

    @property
    def operating_point(self) -> str:
        """Name of the present operating point."""
        return self._tracker.operating_point

    @property
    def state(self) -> ControlState:
        """Snapshot for logs and monitoring."""
        return self._tracker.state

    def observe(self, cost_N: ArrayLike, *, at: str | None = None) -> str | None:
        """Add the costs of classified examples.

        Args:
            cost_N: Costs in the family's unit, as the engine returns them.
            at: The operating point at which they were classified; None for the present one. Costs of another point
                than the present one are ignored.

        Returns:
            The name of the new operating point if it changes, else None.
        """
        highest = float(np.max(cost_N, initial=0.0))
        if highest > self._largest * (1.0 + 1e-6):
            raise RequestError(
                f"observed cost {highest:g} is above {self._largest:.4g}, the cost of all stages and heads; "
                f"give costs of the family's network, in the family's unit"
            )
        return self._tracker.observe(cost_N, at)

    def set_target(self, target: float) -> str | None:
        """Set another mean cost, and return the name of the new operating point if it changes at once, else None."""
        self._ladder.require_cost(target)
        return self._tracker.set_target(target)


class LatencyController:
    """Holds a 95th percentile of latency.

    Chooses the most expensive efficient operating point whose 95th percentile is within the target. The caller measures
    the latencies. Latencies at other points are predicted in proportion to mean costs. If even the cheapest point
    misses the target, because the machine is slow for a while, `state.out_of_reach` is True; this is not an error.

    Args:
        family: The operating points with their expected costs.
        target_ms: Target of the 95th percentile in milliseconds.
        start: Name of the efficient point to start at; None for the cheapest.
        settings: Windows (in requests) and margins.

    Example:
        >>> from elfnet import LatencyController, load
        >>> family = load("digits.onnx").engine.family
        >>> controller = LatencyController(family, target_ms=5.0)
        >>> point = controller.observe_latency([4.2, 4.8, 4.4])
        >>> controller.operating_point in family.names()
        True
    """

    def __init__(
        self, family: Family, target_ms: float, *, start: str | None = None, settings: ControlSettings | None = None
    ) -> None:
        settings = settings or ControlSettings()
        if not (math.isfinite(target_ms) and target_ms > 0.0):
            raise RequestError(f"target_ms={target_ms} must be a finite number of milliseconds above 0")
        if settings.window < MIN_LATENCY_WINDOW:
            raise RequestError(
                f"window={settings.window} requests are too few for a 95th percentile; "
                f"give {MIN_LATENCY_WINDOW} or more"
            )
        ladder = Ladder.of(family)
        if start is not None and family.point(start).name not in ladder.names:
            raise RequestError(
                f"operating point {start!r} costs more than a more accurate one; start at one of: "
                f"{', '.join(ladder.names)}"
            )
        rung = 0 if start is None else ladder.names.index(start)
        self._tracker = TargetTracker(ladder, TailLatency(), target_ms, rung, settings)

    @property
    def operating_point(self) -> str:
        """Name of the present operating point."""
        return self._tracker.operating_point

    @property
    def state(self) -> ControlState:
        """Snapshot for logs and monitoring."""
        return self._tracker.state

    def observe_latency(self, milliseconds: ArrayLike, *, at: str | None = None) -> str | None:
        """Add the latencies of one or more requests.

        Args:
            milliseconds: Latency per request.
            at: The operating point of these requests; None for the present one. Latencies of another point than the
                present one are ignored.

        Returns:
            The name of the new operating point if it changes, else None.
        """
        return self._tracker.observe(milliseconds, at)


class BatteryBudget:
    """Cost budget as a function of the battery level, with hysteresis.

    The budget is linear between the entries of a table, and constant outside. A falling level counts at once; a rising
    level counts only as far as it exceeds `hysteresis`. So readings that jitter by less change nothing, and the budget
    is never above the table's value for the present level.

    Args:
        table: Mean cost by level in percent; at least two levels, budgets that do not fall as the level rises.
        hysteresis: Hysteresis in percent.
    """

    def __init__(self, table: Mapping[float, float], *, hysteresis: float = 5.0) -> None:
        if len(table) < 2:
            raise RequestError(f"battery table has {len(table)} entries; give at least two levels, each with a budget")
        self._levels = sorted(table)
        self._budgets = [table[level] for level in self._levels]
        for level in self._levels:
            _require_level(level)
        if not all(math.isfinite(budget) and budget > 0.0 for budget in self._budgets):
            raise RequestError(f"battery table: budgets {self._budgets} must be mean costs above 0")
        if self._budgets != sorted(self._budgets):
            raise RequestError(f"battery table: budgets {self._budgets} fall as the level rises; let them stay or rise")
        if not 0.0 <= hysteresis < 100.0:
            raise RequestError(f"hysteresis={hysteresis} must lie in [0, 100) percent; 5 is usual")
        self._hysteresis = hysteresis
        self._effective_level: float | None = None

    @property
    def range(self) -> tuple[float, float]:
        """The smallest and the largest budget."""
        return self._budgets[0], self._budgets[-1]

    def at(self, level: float) -> float:
        """Add a reading of the level in percent, and return the budget that follows."""
        _require_level(level)
        before = level if self._effective_level is None else self._effective_level
        self._effective_level = min(level, max(before, level - self._hysteresis))
        return float(np.interp(self._effective_level, self._levels, self._budgets))


class BatteryController:
    """Holds the mean cost that the battery level allows. Thread-safe.

    The target of an internal `CostController` follows the budget in steps of the dead band. A full discharge sets at
    most log(largest / smallest budget) / log(1 + dead band) + 1 targets. Readings that vary by less than the hysteresis
    set none.

    Args:
        family: The operating points with their expected costs.
        table: Mean cost by level in percent; each one within the targets of a `CostController` of the family.
        level: The first reading of the level in percent.
        hysteresis: Hysteresis in percent.
        settings: Windows and margins.

    Example:
        >>> from elfnet import BatteryController, load
        >>> family = load("digits.onnx").engine.family
        >>> controller = BatteryController(family, {100: 1.0, 50: 0.6, 20: 0.3}, level=80)
        >>> controller.operating_point in family.names()
        True
    """

    def __init__(
        self,
        family: Family,
        table: Mapping[float, float],
        level: float,
        *,
        hysteresis: float = 5.0,
        settings: ControlSettings | None = None,
    ) -> None:
        self._budget = BatteryBudget(table, hysteresis=hysteresis)
        self._settings = settings or ControlSettings()
        for budget in self._budget.range:
            CostController(family, budget)  # refuses a budget that the family cannot hold, before it is needed
        self._target = self._budget.at(level)
        self._cost = CostController(family, self._target, self._settings)
        self._lock = Lock()

    @property
    def operating_point(self) -> str:
        """Name of the present operating point."""
        return self._cost.operating_point

    @property
    def state(self) -> ControlState:
        """Snapshot for logs and monitoring."""
        return self._cost.state

    def set_battery(self, level: float) -> str | None:
        """Add a reading of the level in percent, and return the name of the new operating point if it changes."""
        with self._lock:
            budget = self._budget.at(level)
            factor = 1.0 + self._settings.dead_band
            if self._target / factor <= budget <= self._target * factor:
                return None
            self._target = budget
            return self._cost.set_target(budget)

    def observe(self, cost_N: ArrayLike, *, at: str | None = None) -> str | None:
        """Add the costs of classified examples; see `CostController.observe`."""
        return self._cost.observe(cost_N, at=at)


def _require_level(level: float) -> None:
    if not 0.0 <= level <= 100.0:
        raise RequestError(f"battery level {level} must lie in 0..100 percent")


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
