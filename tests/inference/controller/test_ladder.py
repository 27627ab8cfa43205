"""Only efficient points are rungs, by rising cost."""

from collections.abc import Callable

import numpy as np
import pytest

from elfnet.calibrate.family import Family
from elfnet.errors import RequestError
from elfnet.inference.controller.stepper import Ladder, highest_within

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
