"""Hold a mean cost as the inputs get harder or easier."""

# Shapes: N examples of a call
# Shapes: N requests

import math
from collections.abc import Mapping
from threading import Lock

import numpy as np
from numpy.typing import ArrayLike

from elfnet.calibrate.family import Family
from elfnet.errors import RequestError
from elfnet.inference.controller.detectors import TAIL_SHARE, MeanCost, TailLatency
from elfnet.inference.controller.stepper import Ladder, highest_within
from elfnet.inference.controller.target import ControlSettings, ControlState, HeldTarget


class CostController:
    """The dearest efficient operating point whose mean cost on the present inputs is within the target.

    Reads the cost of each answer and nothing else: no label, no clock. The bound on its moves is in `stepper`.

    Args:
        family: the operating points with their expected costs.
        target: mean cost in the family's unit, from that of the cheapest point to the worst case of the dearest.
        settings: windows and margins.

    Example:
        controller = CostController(family, 0.6)
        answers = engine(images)
        name = controller.observe(answers.cost_N)
        if name is not None:
            engine.set_operating_point(name)
    """

    def __init__(self, family: Family, target: float, settings: ControlSettings | None = None) -> None:
        self._ladder = Ladder.of(family)
        self._ladder.require_cost(target)
        self._largest = family.cost[-1]  # every stage and every head
        start = highest_within(self._ladder.mean_cost, target)
        gauge = MeanCost(family.cost[0] - family.head_cost[0], self._largest)
        self._held = HeldTarget(self._ladder, gauge, target, start, settings or ControlSettings())

    @property
    def operating_point(self) -> str:
        """The name of the point in force."""
        return self._held.operating_point

    @property
    def state(self) -> ControlState:
        return self._held.state

    def observe(self, cost_N: ArrayLike, *, at: str | None = None) -> str | None:
        """Take the costs of answered examples; the name of the new operating point, if it is time to move.

        Args:
            cost_N: as the engine returns them, in the family's unit.
            at: the operating point they were answered at; those of another point than the present are left out.
        """
        highest = float(np.max(cost_N, initial=0.0))
        if highest > self._largest * (1.0 + 1e-6):
            raise RequestError(
                f"observed cost {highest:g} is above {self._largest:.4g}, that of all stages and heads; "
                f"give costs of the network that the family is of, in the family's unit"
            )
        return self._held.observe(cost_N, at)

    def set_target(self, target: float) -> str | None:
        """Hold another mean cost from now on; the name of the new operating point, if it moves at once."""
        self._ladder.require_cost(target)
        return self._held.set_target(target)


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


class BatteryBudget:
    """Budget as a function of the level: linear between the entries of a table, constant beyond its ends.

    A falling level counts at once, a rising one only for what exceeds `hysteresis`: readings that jitter by less than
    that change nothing, and the budget is never above what the table gives for the level read.

    Args:
        table: level in percent -> mean cost; at least two levels, budgets that never fall as the level rises.
        hysteresis: in percent.
    """

    def __init__(self, table: Mapping[float, float], *, hysteresis: float = 5.0) -> None:
        if len(table) < 2:
            raise RequestError(f"battery table has {len(table)} entries; give two levels or more, each with a budget")
        self._levels = sorted(table)
        self._budgets = [table[level] for level in self._levels]
        for level in self._levels:
            _require_level(level)
        if not all(math.isfinite(budget) and budget > 0.0 for budget in self._budgets):
            raise RequestError(f"battery table: budgets {self._budgets} must be mean costs above 0")
        if self._budgets != sorted(self._budgets):
            raise RequestError(
                f"battery table: budgets {self._budgets} fall as the level rises; give a fuller battery no less"
            )
        if not 0.0 <= hysteresis < 100.0:
            raise RequestError(f"hysteresis={hysteresis} must lie in 0..100 percent, 100 excluded; 5 is usual")
        self._hysteresis = hysteresis
        self._counted: float | None = None

    @property
    def range(self) -> tuple[float, float]:
        """The smallest and the largest budget."""
        return self._budgets[0], self._budgets[-1]

    def at(self, level: float) -> float:
        """Take a reading; the budget that holds from now on."""
        _require_level(level)
        before = level if self._counted is None else self._counted
        self._counted = min(level, max(before, level - self._hysteresis))
        return float(np.interp(self._counted, self._levels, self._budgets))


class BatteryController:
    """Holds the budget that the battery's level allows. Thread-safe.

    The target of the cost controller inside follows the budget in steps of the dead band, so a full discharge sets at
    most log(largest / smallest budget) / log(1 + dead band) + 1 targets. Readings that go to and fro by less than the
    hysteresis set none.

    Args:
        family: the operating points with their expected costs.
        table: level in percent -> mean cost, each one that a `CostController` of the family can hold.
        level: the first reading.
        hysteresis: in percent.
        settings: windows and margins.
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
            CostController(family, budget)  # refuses a budget that the family cannot hold, now and not at 3 percent
        self._target = self._budget.at(level)
        self._cost = CostController(family, self._target, self._settings)
        self._lock = Lock()

    @property
    def operating_point(self) -> str:
        """The name of the point in force."""
        return self._cost.operating_point

    @property
    def state(self) -> ControlState:
        return self._cost.state

    def set_battery(self, level: float) -> str | None:
        """Take a reading in percent; the name of the new operating point, if it moves at once."""
        with self._lock:
            budget = self._budget.at(level)
            factor = 1.0 + self._settings.dead_band
            if self._target / factor <= budget <= self._target * factor:
                return None
            self._target = budget
            return self._cost.set_target(budget)

    def observe(self, cost_N: ArrayLike, *, at: str | None = None) -> str | None:
        """Take the costs of answered examples; the name of the new operating point, if it is time to move."""
        return self._cost.observe(cost_N, at=at)


def _require_level(level: float) -> None:
    if not 0.0 <= level <= 100.0:
        raise RequestError(f"battery level {level} must lie in 0..100 percent")
