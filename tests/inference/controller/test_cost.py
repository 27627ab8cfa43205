"""A mean cost is held as inputs change, and little is moved when they do not."""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.typing import NDArray

from elfnet.calibrate.point_family import Family
from elfnet.errors import RequestError
from elfnet.inference.controller.controllers import CostController
from elfnet.inference.controller.target import ControlSettings

FamilyFactory = Callable[..., Family]
EXPECTED = (0.2, 0.4, 0.6, 0.8, 1.0)
CHEAP, DEAR = 0.1, 1.2
SETTINGS = ControlSettings(window=100)


def costs(point: str, harder: float, size: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Two exits; the mean is what the point is expected to cost, times how much harder the inputs are."""
    mean = min(EXPECTED[int(point[1:])] * harder, DEAR)
    return np.where(rng.random(size) < (mean - CHEAP) / (DEAR - CHEAP), DEAR, CHEAP)


def play(
    controller: CostController, harder: Callable[[float], float], *, windows: int, seed: int = 0
) -> NDArray[np.float64]:
    """Mean cost of every window while the inputs get `harder` with the share of the stream that has gone by."""
    rng = np.random.default_rng(seed)
    means = []
    for window in range(windows):
        cost_N = costs(controller.operating_point, harder(window / windows), 100, rng)
        controller.observe(cost_N)
        means.append(cost_N.mean())
    return np.array(means)


@pytest.mark.parametrize(("target", "point"), [(0.2, "p0"), (0.59, "p1"), (0.6, "p2"), (1.2, "p4")])
def test_starts_at_the_dearest_point_expected_within_the_target(
    make_family: FamilyFactory, target: float, point: str
) -> None:
    assert CostController(make_family(), target).operating_point == point


def test_goes_down_and_up_again(make_family: FamilyFactory) -> None:
    controller = CostController(make_family(), 0.65, SETTINGS)
    assert controller.operating_point == "p2"
    play(controller, lambda _: 1.5, windows=40)  # p1 costs 0.6, p2 0.9
    assert controller.operating_point == "p1"
    play(controller, lambda _: 0.6, windows=40)  # p4 costs 0.6
    assert controller.operating_point == "p4"
    assert controller.state.moves <= 8


def test_holds_what_a_fixed_point_does_not(make_family: FamilyFactory) -> None:
    family = make_family(np.arange(0.2, 1.01, 0.05).round(2).tolist())
    expected = {point.name: point.expected.mean_cost for point in family.points}
    rng = np.random.default_rng(0)
    controller = CostController(family, 0.6, SETTINGS)
    held: list[float] = []
    fixed: list[float] = []
    for window in range(400):
        harder = 1.0 + 0.35 * math.sin(2 * math.pi * window / 400)
        for name, means in ((controller.operating_point, held), ("p8", fixed)):
            share = (min(expected[name] * harder, DEAR) - CHEAP) / (DEAR - CHEAP)
            cost_N = np.where(rng.random(100) < share, DEAR, CHEAP)
            means.append(float(cost_N.mean()))
            if means is held:
                controller.observe(cost_N)
    held_B, fixed_B = (np.array(means).reshape(20, 20).mean(axis=1) for means in (held, fixed))
    assert np.abs(fixed_B - 0.6).mean() > 0.1
    assert np.abs(held_B - 0.6).mean() < 0.04
    assert held_B.max() < 0.6 * 1.2


@pytest.mark.parametrize("harder", [0.7, 1.0, 1.03, 1.08, 1.3])
def test_few_moves_in_a_stream_without_drift(make_family: FamilyFactory, harder: float) -> None:
    """The bound of the stepper, in a stream that is noisy but stationary: one phase, so logarithmic."""
    windows = 800
    for seed in range(2):
        controller = CostController(make_family(), 0.62, SETTINGS)
        means = play(controller, lambda _: harder, windows=windows, seed=seed)
        state = controller.state
        assert state.changes == 0
        assert state.moves <= 2 * 4 * (1 + math.log2(windows))
        # And the target is kept once it has settled.
        assert means[windows // 2 :].mean() <= 0.62 * 1.04


@pytest.mark.parametrize("stream", ["constant", "by example", "by window", "random walk", "trap"])
def test_moves_are_bounded_by_phases_in_any_stream(make_family: FamilyFactory, stream: str) -> None:
    rng = np.random.default_rng(0)
    controller = CostController(make_family(), 0.62, SETTINGS)
    level, windows = 0.6, 500
    for window in range(windows):
        level = float(np.clip(level + rng.normal(0, 0.05), CHEAP, DEAR))
        cost_N = {
            "constant": np.full(100, 0.9),
            "by example": np.tile([CHEAP, DEAR], 50),
            "by window": np.full(100, CHEAP if window % 2 else DEAR),
            "random walk": np.full(100, level),
            "trap": np.full(100, 0.8 if controller.operating_point == "p3" else 0.4),
        }[stream]
        moves = controller.state.moves
        controller.observe(cost_N)
        assert controller.state.moves - moves <= 1
    state = controller.state
    # Each of changes + 1 phases keeps to its own bound; by concavity none of equal length does worse in sum.
    phases = state.changes + 1
    assert state.moves <= phases * 2 * 4 * (1 + math.log2(windows / phases))
    if stream in ("constant", "by example", "trap"):
        assert state.changes == 0
    if stream == "trap":
        assert state.moves >= 2 * math.floor(math.log2(windows)) - 2  # it does try again


def test_a_detected_change_makes_it_try_again_at_once(make_family: FamilyFactory) -> None:
    controller = CostController(make_family(), 0.62, SETTINGS)
    for _ in range(300):
        controller.observe(np.full(100, 0.8 if controller.operating_point == "p3" else 0.4))
    assert controller.state.operating_point == "p2"
    assert controller.state.wait > 64
    for _ in range(30):
        controller.observe(np.full(100, 0.1))
    assert controller.state.changes == 1
    assert controller.operating_point == "p4"


def test_windows_are_filled_by_calls_of_any_size(make_family: FamilyFactory) -> None:
    controller = CostController(make_family(), 0.62, SETTINGS)
    for _ in range(99):
        assert controller.observe(1.2) is None
    assert controller.state.windows == 0
    assert controller.state.observed is None
    assert controller.observe([0.7]) == "p0" == controller.operating_point
    assert controller.state.windows == 1
    assert controller.observe(np.full(5_000, 0.1)) == "p4"
    assert controller.state.windows == 2
    assert controller.observe([]) is None


def test_what_was_seen_at_another_point_is_left_out(make_family: FamilyFactory) -> None:
    controller = CostController(make_family(), 0.62, SETTINGS)
    assert controller.observe(np.full(1_000, 1.2), at="p4") is None
    assert controller.state.windows == 0
    assert controller.observe(np.full(100, 0.7), at="p2") == "p1"
    # What is half a window must not mix with the new point's.
    controller.observe(np.full(50, 1.2), at="p1")
    assert controller.observe(np.full(100, 1.2), at="p2") is None
    assert controller.state.windows == 1


def test_out_of_reach_is_told(make_family: FamilyFactory) -> None:
    controller = CostController(make_family(), 0.3, SETTINGS)
    controller.observe(np.full(100, 0.5))
    assert controller.state.out_of_reach
    assert controller.state.observed == pytest.approx(0.5)
    for _ in range(100):
        controller.observe(np.full(100, 0.1))
    assert not controller.state.out_of_reach


def test_new_target(make_family: FamilyFactory) -> None:
    controller = CostController(make_family(), 0.62, SETTINGS)
    assert controller.set_target(0.85) == "p3"
    assert controller.set_target(0.81) is None
    controller.observe(np.full(100, 1.0))  # a quarter harder than expected, and so p2
    assert controller.operating_point == "p2"
    # The drift that was seen counts: p3 is known to cost 1.0 here, p4 1.25 but never more than 1.2.
    assert controller.set_target(0.99) is None
    assert controller.set_target(1.0) == "p3"
    assert controller.set_target(1.2) == "p4"
    assert controller.state.target == 1.2
    # Half a window seen at the old point does not count at the new one.
    windows = controller.state.windows
    controller.observe(np.full(50, 1.0))
    assert controller.set_target(1.0) == "p3"
    controller.observe(np.full(50, 1.0))
    assert controller.state.windows == windows


def test_refused(make_family: FamilyFactory) -> None:
    for target in (0.1, 2.0):
        with pytest.raises(RequestError, match=f"target cost {target:g} cannot be held"):
            CostController(make_family(), target)
    controller = CostController(make_family(), 0.62, SETTINGS)
    with pytest.raises(RequestError, match=r"target cost 0\.1 cannot be held"):
        controller.set_target(0.1)
    with pytest.raises(RequestError, match=r"observed cost 70 is above 1\.2"):
        controller.observe([0.5, 70.0])
    for wrong in (float("nan"), -0.5):
        with pytest.raises(RequestError, match=f"observed value {wrong:g} must be a finite number"):
            controller.observe([0.5, wrong])
    assert controller.state.windows == 0
    assert controller.state.target == 0.62


def test_threads_lose_nothing(make_family: FamilyFactory) -> None:
    controller = CostController(make_family(), 0.62, ControlSettings(window=10))

    def call(_: int) -> list[str | None]:
        return [controller.observe([0.6]) for _ in range(500)]

    with ThreadPoolExecutor(4) as pool:
        answers = [answer for part in pool.map(call, range(4)) for answer in part]
    state = controller.state
    assert state.windows == 200
    assert sum(answer is not None for answer in answers) == state.moves
