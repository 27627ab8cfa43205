"""Subtracting tau log prior from logits."""

import math

import numpy as np
import pytest

from elfnet.errors import RequestError
from elfnet.exits.logit_adjustment import LogitAdjustment

PRIOR = tuple(math.log(share) for share in (0.7, 0.2, 0.1))


def test_each_exit_has_its_tau() -> None:
    logits_NC = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
    adjustment = LogitAdjustment((0.5, 0.0, 2.0), PRIOR)
    for k, tau in enumerate(adjustment.taus):
        expected = [
            [value - tau * prior for value, prior in zip(row, PRIOR, strict=True)] for row in logits_NC.tolist()
        ]
        np.testing.assert_allclose(adjustment.apply(k, logits_NC), expected, rtol=1e-12)
    assert adjustment.apply(1, logits_NC) is logits_NC
    assert (adjustment.exits, adjustment.classes) == (3, 3)


def test_a_rare_class_wins_where_it_is_as_good_but_for_its_prior() -> None:
    """The logits are a long-tailed log posterior; without the prior all classes are equal."""
    posterior_NC = np.array([PRIOR])
    adjusted_NC = LogitAdjustment((1.0,), PRIOR).apply(0, posterior_NC)
    np.testing.assert_allclose(adjusted_NC, 0.0, atol=1e-12)


def test_equal_ones_are_one_key() -> None:
    one, same, other = (LogitAdjustment((tau,), PRIOR) for tau in (0.5, 0.5, 0.6))
    assert one == same
    assert one != LogitAdjustment((0.5,), PRIOR[::-1])
    assert {one: 1}[same] == 1
    assert other not in {one: 1}
    assert "log_prior" not in repr(one)


@pytest.mark.parametrize(
    ("taus", "prior", "complaint"),
    [
        ((), PRIOR, "taus .* must be numbers of 0 or more, one per exit"),
        ((-0.1,), PRIOR, "must be numbers of 0 or more"),
        ((math.nan,), PRIOR, "must be numbers of 0 or more"),
        ((1.0,), (), "log_prior must be finite numbers, one per class"),
        ((1.0,), (-math.inf, 0.0), "log_prior must be finite numbers"),
    ],
)
def test_impossible_ones_are_refused(taus: tuple[float, ...], prior: tuple[float, ...], complaint: str) -> None:
    with pytest.raises(RequestError, match=complaint):
        LogitAdjustment(taus, prior)
