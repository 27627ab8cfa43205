"""A battery level mapped to a budget, and that budget held."""

# Shapes: N examples of a call

import math
from collections.abc import Mapping
from threading import Lock

import numpy as np
from numpy.typing import ArrayLike

from elfnet.calibrate.family import Family
from elfnet.deploy.controller.cost import CostController
from elfnet.deploy.controller.held_target import ControlState
from elfnet.deploy.controller.settings import ControlSettings
from elfnet.errors import RequestError


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
