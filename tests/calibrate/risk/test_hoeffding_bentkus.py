"""The Hoeffding-Bentkus p-value and bound: against SciPy, closed forms and simulation."""

import math

import numpy as np
import pytest
from scipy.special import rel_entr  # type: ignore[import-untyped]
from scipy.stats import binom  # type: ignore[import-untyped]

from elfnet.calibrate.risk.bounds import hoeffding_bentkus_p_values, hoeffding_bentkus_upper_bounds


def test_p_values_against_scipy() -> None:
    rng = np.random.default_rng(0)
    for n in (1, 7, 200, 3000):
        loss_PN = rng.random((8, n)) * np.linspace(0.0, 1.0, 8)[:, None] ** 2
        loss_PN[4:] = np.round(loss_PN[4:])
        for limit in (0.02, 0.3, 0.9):
            total_P = loss_PN.sum(axis=1)
            mean_P = np.minimum(total_P / n, limit)
            hoeffding = np.exp(-n * (rel_entr(mean_P, limit) + rel_entr(1 - mean_P, 1 - limit)))
            expected = np.minimum(hoeffding, np.e * binom.cdf(np.ceil(total_P), n, limit)).clip(max=1.0)
            np.testing.assert_allclose(hoeffding_bentkus_p_values(loss_PN, limit), expected, rtol=1e-8, atol=1e-300)


@pytest.mark.parametrize("n", [1, 10, 100, 1000])
def test_no_loss_at_all_has_a_closed_form(n: int) -> None:
    no_loss = np.zeros((1, n))
    assert hoeffding_bentkus_p_values(no_loss, 0.05)[0] == pytest.approx(0.95**n)
    # (1 - m) ** n = delta
    assert hoeffding_bentkus_upper_bounds(no_loss, 0.1)[0] == pytest.approx(1 - 0.1 ** (1 / n), abs=1e-7)


def test_the_bound_is_the_smallest_limit_that_is_rejected() -> None:
    loss_PN = (np.random.default_rng(1).random((6, 300)) < np.linspace(0.0, 1.0, 6)[:, None]).astype(np.float64)
    bound_P = hoeffding_bentkus_upper_bounds(loss_PN, 0.05)
    for p, bound in enumerate(bound_P.tolist()):
        assert hoeffding_bentkus_p_values(loss_PN[p : p + 1], bound)[0] <= 0.05
        assert hoeffding_bentkus_p_values(loss_PN[p : p + 1], bound - 1e-6)[0] > 0.05
    assert (np.diff(bound_P) > 0).all()
    assert bound_P[-1] == 1.0


def test_the_order_of_candidates_and_examples_does_not_matter() -> None:
    rng = np.random.default_rng(2)
    loss_PN = (rng.random((5, 90)) < np.array([0.4, 0.1, 0.1, 0.0, 0.2])[:, None]).astype(np.float64)
    order = rng.permutation(5)
    shuffled = loss_PN[order][:, rng.permutation(90)]
    np.testing.assert_array_equal(
        hoeffding_bentkus_upper_bounds(shuffled, 0.1), hoeffding_bentkus_upper_bounds(loss_PN, 0.1)[order]
    )


def test_far_tails_do_not_underflow_to_a_wrong_answer() -> None:
    loss_PN = np.zeros((2, 100_000))
    loss_PN[1, ::50] = 1.0
    assert hoeffding_bentkus_p_values(loss_PN, 0.5)[1] == 0.0
    assert 0.02 < hoeffding_bentkus_upper_bounds(loss_PN, 1e-12)[1] < 0.025


def test_more_examples_of_the_same_kind_give_a_lower_bound() -> None:
    bounds = [hoeffding_bentkus_upper_bounds(np.tile([[0.0, 0.0, 0.0, 1.0]], n), 0.05)[0] for n in (5, 20, 80, 320)]
    assert (np.diff(bounds) < 0).all()


@pytest.mark.parametrize("kind", ["coin", "beta"])
def test_the_mean_is_below_the_bound_often_enough(kind: str) -> None:
    rng, draws, n, delta, mean = np.random.default_rng(3), 600, 100, 0.1, 0.1
    loss_PN = (rng.random((draws, n)) < mean).astype(np.float64) if kind == "coin" else rng.beta(1, 9, size=(draws, n))
    missed = float(np.mean(hoeffding_bentkus_upper_bounds(loss_PN, delta) < mean))
    assert missed <= delta + 3 * math.sqrt(delta * (1 - delta) / draws)
    if kind == "coin":  # it knows the variance of coins, and of nothing else
        assert missed > 0.005
