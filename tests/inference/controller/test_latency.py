"""The 95th percentile of reported durations is held."""

from collections.abc import Callable

import numpy as np
import pytest

from elfnet.calibrate.point_family import Family
from elfnet.errors import RequestError
from elfnet.inference.controller.controllers import LatencyController
from elfnet.inference.controller.target import ControlSettings

FamilyFactory = Callable[..., Family]
SETTINGS = ControlSettings(window=100)
EXPECTED = {"p0": 0.2, "p1": 0.4, "p2": 0.6, "p3": 0.8, "p4": 1.0}


def play(controller: LatencyController, ms_per_cost: float, *, windows: int, seed: int = 0) -> float:
    """The 95th percentile over the second half."""
    rng, seen = np.random.default_rng(seed), []
    for _ in range(windows):
        durations = ms_per_cost * EXPECTED[controller.operating_point] * rng.lognormal(0, 0.1, size=100)
        controller.observe_latency(durations)
        seen.append(durations)
    return float(np.quantile(np.concatenate(seen[windows // 2 :]), 0.95))


def test_follows_the_speed_of_the_machine(make_family: FamilyFactory) -> None:
    controller = LatencyController(make_family(), 10.0, settings=SETTINGS)
    assert controller.operating_point == "p0"
    # exp(1.645 * 0.1) = 1.18: the percentile of p3 is 9.4 ms, that of p4 11.8.
    assert play(controller, 10.0, windows=60) == pytest.approx(9.4, rel=0.05)
    assert controller.operating_point == "p3"
    assert play(controller, 20.0, windows=60) == pytest.approx(9.4, rel=0.05)
    assert controller.operating_point == "p1"
    assert play(controller, 10.0, windows=60, seed=1) == pytest.approx(9.4, rel=0.05)
    assert not controller.state.out_of_reach


def test_few_slow_requests_are_allowed(make_family: FamilyFactory) -> None:
    controller = LatencyController(make_family(), 10.0, start="p2", settings=SETTINGS)
    for _ in range(50):
        controller.observe_latency([9.9] * 96 + [500.0] * 4)
    assert controller.operating_point == "p2"
    for _ in range(10):
        controller.observe_latency([9.9] * 80 + [500.0] * 20)
    assert controller.operating_point == "p0"
    assert controller.state.out_of_reach
    assert controller.state.observed == pytest.approx(500.0)


def test_one_request_at_a_time(make_family: FamilyFactory) -> None:
    controller = LatencyController(make_family(), 10.0, start="p4", settings=SETTINGS)
    answers = [controller.observe_latency(11.0) for _ in range(100)]
    assert answers == [None] * 99 + ["p3"]
    assert controller.observe_latency([11.0] * 100, at="p4") is None


@pytest.mark.parametrize("target", [0.0, -1.0, float("nan"), float("inf")])
def test_targets_refused(make_family: FamilyFactory, target: float) -> None:
    with pytest.raises(RequestError, match="target_ms="):
        LatencyController(make_family(), target)


def test_starts_refused(make_family: FamilyFactory) -> None:
    family = make_family([0.2, 0.4, 0.6], accuracy=[0.5, 0.7, 0.6])
    with pytest.raises(RequestError, match="'p2' costs more than a more accurate one; start at one of: p0, p1"):
        LatencyController(family, 10.0, start="p2")
    with pytest.raises(RequestError, match="unknown operating point 'p9'"):
        LatencyController(family, 10.0, start="p9")
    with pytest.raises(RequestError, match="window=20 requests are too few"):
        LatencyController(family, 10.0, settings=ControlSettings(window=20))
