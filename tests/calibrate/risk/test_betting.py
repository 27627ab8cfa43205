"""The betting p-value and bound: against a loop, closed forms and simulation."""

import math

import numpy as np
import pytest

from elfnet.calibrate.risk.bounds import LARGEST_STAKE, betting_p_values, betting_upper_bounds


def _p_value_by_loop(losses: list[float], limit: float, delta: float) -> float:
    total, squares, variance = 0.5, 0.25, 0.25
    capital = largest = 1.0
    for i, loss in enumerate(losses, start=1):
        stake = min(math.sqrt(2 * math.log(1 / delta) / (len(losses) * variance)), LARGEST_STAKE / (1 - limit))
        capital *= 1 + stake * (limit - loss)
        largest = max(largest, capital)
        total += loss
        squares += (loss - total / (i + 1)) ** 2
        variance = squares / (i + 1)
    return 1 / largest


def test_p_values_against_a_loop() -> None:
    loss_PN = np.random.default_rng(0).beta(0.5, 3.0, size=(6, 80))
    loss_PN[3:] = loss_PN[3:] > 0.3
    for limit, delta in ((0.1, 0.05), (0.3, 0.1), (0.6, 0.001)):
        expected = [_p_value_by_loop(row, limit, delta) for row in loss_PN.tolist()]
        np.testing.assert_allclose(betting_p_values(loss_PN, limit, delta), expected, rtol=1e-10)
    assert betting_p_values(loss_PN, 0.6, 0.001).max() < 0.01
    assert betting_p_values(loss_PN, 0.01, 0.1).min() > 0.9


def test_losses_at_one_half_have_a_closed_form() -> None:
    # The variance estimate is then exactly 1 / (4 i), so stake i is sqrt(8 i log(1/delta) / n) up to its cap.
    n, limit, delta = 400, 0.52, 0.05
    stake = np.minimum(np.sqrt(8 * np.arange(1, n + 1) * math.log(1 / delta) / n), LARGEST_STAKE / (1 - limit))
    expected = math.exp(-np.log1p(stake * 0.02).sum())
    assert betting_p_values(np.full((1, n), 0.5), limit, delta)[0] == pytest.approx(expected, rel=1e-10)


def test_the_bound_is_the_smallest_limit_that_is_rejected() -> None:
    loss_PN = np.random.default_rng(1).random((5, 120)) * np.linspace(0.0, 1.0, 5)[:, None]
    bound_P = betting_upper_bounds(loss_PN, 0.1)
    for p, bound in enumerate(bound_P.tolist()):
        assert betting_p_values(loss_PN[p : p + 1], bound, 0.1)[0] <= 0.1
        assert betting_p_values(loss_PN[p : p + 1], bound - 1e-6, 0.1)[0] > 0.1
    assert (bound_P > loss_PN.mean(axis=1)).all()
    assert betting_upper_bounds(np.ones((1, 50)), 0.1)[0] == 1.0


def test_p_values_fall_with_the_limit() -> None:
    loss_PN = (np.random.default_rng(2).random((1, 200)) < 0.2).astype(np.float64)
    p = [betting_p_values(loss_PN, limit, 0.05)[0] for limit in np.linspace(0.01, 0.99, 60)]
    assert (np.diff(p) <= 1e-12).all()
    assert p[0] > 0.9
    assert p[-1] < 1e-9


@pytest.mark.parametrize("value", [0.0, 0.5])
def test_more_examples_of_the_same_kind_give_a_lower_bound(value: float) -> None:
    bounds = [betting_upper_bounds(np.full((1, n), value), 0.05)[0] for n in (20, 50, 100, 400, 1600)]
    assert (np.diff(bounds) < 0).all()
    assert bounds[-1] < value + 0.04


@pytest.mark.parametrize("kind", ["rare coin", "coin", "three values", "beta"])
def test_the_mean_is_below_the_bound_often_enough(kind: str) -> None:
    rng, draws, n, delta = np.random.default_rng(3), 1500, 150, 0.1
    if kind == "three values":  # the signed loss, rescaled
        mean, loss_PN = 0.52, rng.choice([0.0, 0.5, 1.0], p=[0.03, 0.9, 0.07], size=(draws, n))
    elif kind == "beta":
        mean, loss_PN = 0.25, rng.beta(1.0, 3.0, size=(draws, n))
    else:
        mean = 0.05 if kind == "rare coin" else 0.4
        loss_PN = (rng.random((draws, n)) < mean).astype(np.float64)
    missed = float(np.mean(betting_upper_bounds(loss_PN, delta) < mean))
    assert missed <= delta + 3 * math.sqrt(delta * (1 - delta) / draws)
    assert missed > 0.005, "a bound that is never missed is wider than it need be"
    assert missed == pytest.approx(float(np.mean(betting_p_values(loss_PN, mean, delta) <= delta)), abs=0.002)
