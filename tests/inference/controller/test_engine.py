"""The real engine under a controller: its operating point follows, its answers are its own."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from elfnet.calibrate.point_family import Family
from elfnet.inference.controller.controllers import (
    BatteryController,
    ControlledEngine,
    CostController,
    LatencyController,
)
from elfnet.inference.controller.target import ControlSettings
from elfnet.inference.engine import Answers, Engine

FamilyFactory = Callable[..., Family]
SETTINGS = ControlSettings(window=40)


class TwoExits:
    """Logits of both exits are the image itself: (N, 2, 1, 2) as (N, exit, 1, class)."""

    exits = 2

    def start(self, images_NKHW: NDArray[np.float32]) -> Any:
        return images_NKHW

    def run(self, k: int, features: Any) -> tuple[Any, NDArray[np.float32]]:
        return features, features[:, k, 0]

    def run_without_head(self, k: int, features: Any) -> Any:
        assert k == 0
        return features

    def keep(self, features: Any, stay: NDArray[np.int64]) -> Any:
        return features[stay]


def images(hard: int, easy: int) -> NDArray[np.float32]:
    """Hard ones are unsure at the first exit and go on to the second."""
    images_NKHW = np.zeros((hard + easy, 2, 1, 2), dtype=np.float32)
    images_NKHW[hard:, :, :, 1] = 9.0
    return images_NKHW


@pytest.fixture
def engine(make_family: FamilyFactory) -> Engine:
    return Engine(TwoExits(), make_family())


def test_follows_the_controller(engine: Engine) -> None:
    controller = CostController(engine.family, 0.62, SETTINGS)
    controlled = ControlledEngine(engine, controller)
    assert engine.operating_point == "p2"
    answers = controlled(images(20, 20))  # half at 0.1, half at 1.2: 0.65 and within noise
    assert answers.cost_N.tolist() == engine(images(20, 20)).cost_N.tolist()
    assert sorted(set(answers.cost_N.tolist())) == pytest.approx([0.1, 1.2])
    assert engine.operating_point == "p2"
    for _ in range(3):
        controlled(images(40, 0))
    assert engine.operating_point == controller.operating_point == "p0"


def test_a_call_with_a_point_of_its_own_is_not_observed(engine: Engine) -> None:
    controlled = ControlledEngine(engine, CostController(engine.family, 0.62, SETTINGS))
    for _ in range(5):
        controlled(images(40, 0), operating_point="p4")
        controlled(images(0, 0))
    assert controlled.controller.state.windows == 0
    assert engine.operating_point == "p2"


def test_a_call_overtaken_by_a_move_is_not_observed(engine: Engine) -> None:
    controller = CostController(engine.family, 0.62, SETTINGS)

    class Overtaken:
        """While it answers, another caller makes the controller move."""

        def set_operating_point(self, point: str | float, /) -> str:
            return engine.set_operating_point(point)

        def __call__(
            self, images_NKHW: NDArray[np.float32], /, *, operating_point: str | float | None = None
        ) -> Answers:
            controller.set_target(1.0)
            return engine(images_NKHW, operating_point=operating_point)

    ControlledEngine(Overtaken(), controller)(images(40, 0))
    assert controller.operating_point == "p4"
    assert controller.state.windows == 0


def test_latency_is_taken_around_the_call(engine: Engine) -> None:
    ticks = count()
    controller = LatencyController(engine.family, 900.0, start="p2", settings=SETTINGS)
    controlled = ControlledEngine(engine, controller, clock=lambda: float(next(ticks)))
    for _ in range(40):
        controlled(images(1, 1))
    # One second between two looks at the clock is 1,000 ms: above 900.
    assert controller.state.moves == 1
    assert engine.operating_point == "p1"
    assert next(ticks) == 80


def test_battery(engine: Engine) -> None:
    controller = BatteryController(engine.family, {20.0: 0.3, 80.0: 1.0}, 100.0, settings=SETTINGS)
    controlled = ControlledEngine(engine, controller)
    assert engine.operating_point == "p4"
    controller.set_battery(10.0)
    controlled.follow()
    assert engine.operating_point == "p0"
    for _ in range(2):
        controlled(images(0, 40))
    assert engine.operating_point == controller.operating_point != "p0"


def test_many_callers(engine: Engine) -> None:
    controller = CostController(engine.family, 0.62, SETTINGS)
    controlled = ControlledEngine(engine, controller)

    def call(number: int) -> None:
        for turn in range(50):
            assert len(controlled(images((number + turn) % 9, 8)).exit_N) == (number + turn) % 9 + 8

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(call, range(4)))
    assert engine.operating_point == controller.operating_point
