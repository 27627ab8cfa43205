"""A battery level becomes a budget; jitter becomes nothing."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from elfnet.calibrate.point_family import Family
from elfnet.errors import RequestError
from elfnet.inference.controller.controllers import BatteryBudget, BatteryController
from elfnet.inference.controller.target import ControlSettings

FamilyFactory = Callable[..., Family]
TABLE = {20.0: 0.3, 50.0: 0.6, 80.0: 1.0}


@pytest.mark.parametrize(
    ("level", "budget"), [(0, 0.3), (20, 0.3), (35, 0.45), (50, 0.6), (65, 0.8), (80, 1.0), (100, 1.0)]
)
def test_linear_between_the_entries(level: float, budget: float) -> None:
    assert BatteryBudget(TABLE).at(level) == pytest.approx(budget)


def test_falling_counts_at_once_rising_less_the_hysteresis() -> None:
    budget = BatteryBudget({0.0: 1e-9, 100.0: 100.0}, hysteresis=5.0)
    levels = [50, 48, 52, 53, 54, 60, 56, 55, 54, 53]
    assert [round(budget.at(level)) for level in levels] == [50, 48, 48, 48, 49, 55, 55, 55, 54, 53]


@pytest.mark.parametrize("seed", range(5))
def test_never_above_the_table_and_blind_to_jitter(seed: int) -> None:
    rng = np.random.default_rng(seed)
    walk = np.clip(50 + np.cumsum(rng.normal(0, 3, size=300)), 0, 100)
    budget = BatteryBudget(TABLE, hysteresis=5.0)
    for level in walk:
        counted = budget.at(level)
        assert BatteryBudget(TABLE).at(max(level - 5, 0)) <= counted <= BatteryBudget(TABLE).at(level)
    budget = BatteryBudget(TABLE, hysteresis=5.0)
    budget.at(47.6)
    assert {budget.at(level) for level in 50 + rng.uniform(-2.4, 2.4, size=300)} == {budget.at(47.6)}


def test_a_discharge_moves_down_only(make_family: FamilyFactory) -> None:
    controller = BatteryController(make_family(), TABLE, 100.0)
    assert controller.operating_point == "p4"
    answers = [controller.set_battery(level) for level in range(100, -1, -1)]
    assert [answer for answer in answers if answer] == ["p3", "p2", "p1", "p0"]
    assert controller.state.moves == 4
    assert controller.state.target == pytest.approx(0.3, rel=0.03)


def test_targets_of_a_discharge_are_few_and_jitter_sets_none(make_family: FamilyFactory) -> None:
    controller = BatteryController(make_family(), TABLE, 100.0)
    rng = np.random.default_rng(0)
    targets = [controller.state.target]
    for level in np.linspace(100, 0, 2_000):
        controller.set_battery(float(np.clip(level + rng.uniform(-2, 2), 0, 100)))
        if controller.state.target != targets[-1]:
            targets.append(controller.state.target)
    assert targets == sorted(targets, reverse=True)
    assert len(targets) - 1 <= math.log(1.0 / 0.3) / math.log(1.03) + 1


def test_the_budget_is_held_as_inputs_get_harder(make_family: FamilyFactory) -> None:
    controller = BatteryController(make_family(), TABLE, 50.0, settings=ControlSettings(window=100))
    assert controller.operating_point == "p2"
    assert controller.observe(np.full(100, 0.84)) == "p1"
    # 1.4 times what was expected: what the budget of 0.8 allows is p1 at 0.56, not p3, and not p2 at 0.84.
    assert controller.set_battery(70.0) is None
    assert controller.state.target == pytest.approx(0.8)
    assert controller.set_battery(79.0) == "p2"
    assert controller.observe(np.full(100, 0.9), at="p4") is None


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({50.0: 0.5}, "has 1 entries"),
        ({20.0: 0.5, 120.0: 0.6}, "battery level 120.0 must lie in 0..100"),
        ({20.0: 0.5, 80.0: 0.4}, "fall as the level rises"),
        ({20.0: -0.5, 80.0: 0.4}, "must be mean costs above 0"),
        ({20.0: 0.1, 80.0: 0.4}, "target cost 0.1 cannot be held"),
        ({20.0: 0.4, 80.0: 1.9}, "target cost 1.9 cannot be held"),
    ],
)
def test_tables_refused(make_family: FamilyFactory, table: dict[float, float], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        BatteryController(make_family(), table, 50.0)


@pytest.mark.parametrize("level", [-1.0, 101.0, float("nan")])
def test_levels_refused(make_family: FamilyFactory, level: float) -> None:
    with pytest.raises(RequestError, match=r"must lie in 0\.\.100 percent"):
        BatteryController(make_family(), TABLE, level)
    controller = BatteryController(make_family(), TABLE, 50.0)
    with pytest.raises(RequestError, match=r"must lie in 0\.\.100 percent"):
        controller.set_battery(level)


@pytest.mark.parametrize("hysteresis", [-1.0, 100.0, float("nan")])
def test_hysteresis_refused(hysteresis: float) -> None:
    with pytest.raises(RequestError, match="hysteresis="):
        BatteryBudget(TABLE, hysteresis=hysteresis)
