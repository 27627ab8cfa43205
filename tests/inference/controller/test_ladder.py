"""The bound on moves, against streams made to break it."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from elfnet.calibrate.point_family import Family
from elfnet.errors import RequestError
from elfnet.inference.controller.ladder import Ladder, Stepper, highest_within

RUNGS = 5
FITS_ALL, FITS_NONE = [0.0] * RUNGS, [9.0] * RUNGS

# Given the stepper, the number of the window and a source of random numbers: is it overloaded?
Adversary = Callable[[Stepper, int, np.random.Generator], bool]

ADVERSARIES: dict[str, Adversary] = {
    "constant, overloaded": lambda *_: True,
    "constant, not overloaded": lambda *_: False,
    "alternating": lambda _, window, __: window % 2 == 0,
    "alternating slowly": lambda _, window, __: window // 50 % 2 == 0,
    "random": lambda _, __, rng: bool(rng.random() < 0.5),
    "seldom": lambda _, __, rng: bool(rng.random() < 0.02),
    "a trap on each rung but the lowest": lambda stepper, *_: stepper.rung > 0,
    "a trap on the top rung": lambda stepper, *_: stepper.rung == RUNGS - 1,
    "a random trap": lambda stepper, _, rng: bool(stepper.rung > rng.integers(RUNGS)),
    "longer and longer": lambda _, window, __: window.bit_length() % 2 == 0,
}


def bound(windows: int) -> float:
    return 2 * (RUNGS - 1) * (1 + math.log2(windows))


@pytest.mark.parametrize("far_off", [0.0, 0.2])
@pytest.mark.parametrize("name", ADVERSARIES)
def test_moves_of_a_phase_are_logarithmic_whatever_is_observed(name: str, far_off: float) -> None:
    for seed in range(3):
        rng = np.random.default_rng(seed)
        stepper = Stepper(RUNGS, int(rng.integers(RUNGS)), far_off=far_off)
        for window in range(1, 2_001):
            overloaded = ADVERSARIES[name](stepper, window, rng)
            # The value as tempting as can be: far above when overloaded, far below when not.
            value, predicted = (9.0, FITS_NONE) if overloaded else (0.0, FITS_ALL)
            before = stepper.moves
            moved = stepper.decide(overloaded=overloaded, value=value, predicted=predicted, target=1.0)
            assert stepper.moves - before == moved <= 1
            assert stepper.moves <= bound(window)


def test_a_failing_step_is_tried_again_after_twice_the_time() -> None:
    stepper, moves = Stepper(2, 0, far_off=0.2), []
    for window in range(1, 40):
        top = stepper.rung == 1
        if stepper.decide(overloaded=top, value=1.0, predicted=[0.9, 0.95], target=1.0):
            moves.append((window, stepper.rung))
    # Up, taken back one window later, and waits of 1, 2, 4, 8 and 16 windows.
    assert moves == [(1, 1), (2, 0), (4, 1), (5, 0), (9, 1), (10, 0), (18, 1), (19, 0), (35, 1), (36, 0)]


def test_a_new_phase_shortens_the_waits() -> None:
    stepper = Stepper(2, 0, far_off=0.2)
    for _ in range(20):
        stepper.decide(overloaded=stepper.rung == 1, value=1.0, predicted=[0.9, 0.95], target=1.0)
    assert (stepper.rung, stepper.wait) == (0, 16)
    stepper.new_phase()
    assert stepper.wait == 1
    assert stepper.decide(overloaded=False, value=1.0, predicted=[0.9, 0.95], target=1.0)
    assert (stepper.rung, stepper.wait) == (1, 0)


def test_a_failure_elsewhere_does_not_delay() -> None:
    stepper = Stepper(3, 1, far_off=0.2)
    for _ in range(20):
        stepper.decide(overloaded=stepper.rung == 2, value=1.0, predicted=[0.9, 0.9, 0.9], target=1.0)
    assert stepper.wait == 16
    assert stepper.decide(overloaded=True, value=1.0, predicted=[0.9] * 3, target=1.0)
    assert stepper.decide(overloaded=False, value=1.0, predicted=[0.9] * 3, target=1.0)
    assert stepper.rung == 1


@pytest.mark.parametrize(
    ("overloaded", "value", "predicted", "rung"),
    [
        (True, 1.1, [0.4, 0.6, 0.9, 1.1, 1.3], 2),  # one step
        (True, 1.5, [0.4, 0.9, 1.2, 1.5, 1.8], 1),  # far off: to where it fits
        (True, 1.5, [1.1, 1.2, 1.3, 1.5, 1.8], 0),  # fits nowhere
        (True, 1.5, [0.1, 0.2, 0.3, 0.4, 0.5], 2),  # overloaded whatever the prediction says: down
        (False, 0.9, [0.1, 0.2, 0.3, 0.9, 1.0], 4),  # one step
        (False, 0.9, [0.1, 0.2, 0.3, 0.9, 1.01], 3),  # the next does not fit
        (False, 1.2, [0.1, 0.2, 0.3, 1.2, 1.3], 3),  # above, but not beyond noise: stay
    ],
)
def test_one_decision(overloaded: bool, value: float, predicted: list[float], rung: int) -> None:
    stepper = Stepper(5, 3, far_off=0.2)
    stepper.decide(overloaded=overloaded, value=value, predicted=predicted, target=1.0)
    assert stepper.rung == rung


def test_far_below_climbs_to_where_it_fits() -> None:
    stepper = Stepper(5, 0, far_off=0.2)
    stepper.decide(overloaded=False, value=0.3, predicted=[0.3, 0.5, 0.7, 0.9, 1.1], target=1.0)
    assert (stepper.rung, stepper.moves) == (3, 1)


def test_lowest_rung_stays() -> None:
    stepper = Stepper(5, 0, far_off=0.2)
    assert not stepper.decide(overloaded=True, value=9.0, predicted=FITS_NONE, target=1.0)


def test_jump_begins_a_phase() -> None:
    stepper = Stepper(2, 0, far_off=0.2)
    for _ in range(20):
        stepper.decide(overloaded=stepper.rung == 1, value=1.0, predicted=[0.9, 0.95], target=1.0)
    moves = stepper.moves
    stepper.jump(0)
    assert (stepper.moves, stepper.wait) == (moves, 1)
    stepper.jump(1)
    assert (stepper.moves, stepper.rung) == (moves + 1, 1)


FamilyFactory = Callable[..., Family]


@pytest.mark.parametrize("seed", range(20))
def test_rungs_are_the_points_that_nothing_dominates(make_family: FamilyFactory, seed: int) -> None:
    rng = np.random.default_rng(seed)
    cost = rng.choice(np.arange(1, 12) / 10, size=15).tolist()  # with ties
    accuracy = rng.choice(np.arange(10) / 10, size=15).tolist()
    ladder = Ladder.of(make_family(cost, accuracy=accuracy))

    def dominated(i: int) -> bool:
        return any(
            cost[j] <= cost[i]
            and accuracy[j] >= accuracy[i]
            and ((cost[j], accuracy[j]) != (cost[i], accuracy[i]) or j < i)
            for j in range(15)
            if j != i
        )

    kept = sorted((i for i in range(15) if not dominated(i)), key=lambda i: cost[i])
    assert ladder.names == tuple(f"p{i}" for i in kept)
    assert ladder.mean_cost == tuple(cost[i] for i in kept)


def test_prediction_is_in_proportion_to_expected_costs(make_family: FamilyFactory) -> None:
    ladder = Ladder.of(make_family([0.2, 0.4, 0.8]))
    assert ladder.scaled(0.5, 1) == pytest.approx((0.25, 0.5, 1.0))


def test_highest_within() -> None:
    assert highest_within((0.2, 0.4, 0.8), 0.4) == 1
    assert highest_within((0.2, 0.4, 0.8), 0.1) == 0
    assert highest_within((0.2, 0.4, 0.8), 9.0) == 2


@pytest.mark.parametrize("target", [0.19, 1.21, float("nan"), -1.0])
def test_a_target_out_of_range_is_refused_in_one_line(make_family: FamilyFactory, target: float) -> None:
    ladder = Ladder.of(make_family())
    with pytest.raises(RequestError, match=r"cannot be held; give a value from 0\.2 .*'p0'.* to 1\.2 .*'p4'") as caught:
        ladder.require_cost(target)
    assert "\n" not in str(caught.value)
    ladder.require_cost(0.2)
    ladder.require_cost(1.2)
