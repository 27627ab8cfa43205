"""Replaying a policy, against a loop over examples and exits."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from elfnet.errors import RequestError
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.policy_replay import compute_confidences, replay
from elfnet.exits.logit_adjustment import LogitAdjustment
from elfnet.exits.policy import Policy, full_depth, uniform_policy

TableFactory = Callable[..., ExitTable]


@pytest.mark.parametrize("thresholds", [(0.6, 0.5, 0.4), (0.0, 0.5, 0.5), (1.0, 0.5, 0.9), (1.0, 1.0, 1.0)])
def test_against_a_loop(make_table: TableFactory, thresholds: tuple[float, ...]) -> None:
    table = make_table()
    policy = Policy("p", thresholds, (1.0, 2.0, 0.5, 1.0))
    result = replay(table, policy)
    for n in range(table.examples):
        for k in range(4):
            weights = np.exp(policy.confidence_scale[k] * table.logits_NEC[n, k].astype(np.float64))
            confidence = weights.max() / weights.sum()
            if k == 3 or confidence > thresholds[k]:
                break
        assert result.exit_N[n] == k
        assert result.prediction_N[n] == table.logits_NEC[n, k].argmax()
        assert result.confidence_N[n] == pytest.approx(confidence, rel=1e-12)
        assert result.cost_N[n] == table.cost_E[k]


def test_a_derived_table_gives_the_same(make_table: TableFactory) -> None:
    table = make_table()
    policy = uniform_policy("s", 0.5, 4, 2.0)
    from_table, from_derived = replay(table, policy), replay(compute_confidences(table, 2.0), policy)
    np.testing.assert_array_equal(from_table.exit_N, from_derived.exit_N)
    np.testing.assert_array_equal(from_table.confidence_N, from_derived.confidence_N)


@pytest.mark.parametrize("combine", [False, True])
def test_an_adjustment_is_part_of_the_policy(make_table: TableFactory, combine: bool) -> None:
    """Whatever the table's own: replaying it is replaying the plain policy on adjusted logits."""
    table = make_table()
    adjustment = LogitAdjustment((0.2, 0.0, 0.5, 1.0), tuple(np.log([0.5, 0.2, 0.1, 0.1, 0.07, 0.03]).tolist()))
    plain = Policy("p", (0.6, 0.5, 0.4), (1.0, 2.0, 0.5, 1.0), combine=combine)
    adjusted = replace(plain, adjustment=adjustment)
    logits_NEC = np.stack([adjustment.apply(k, table.logits_NEC[:, k]) for k in range(4)], axis=1)
    expected = replay(replace(table, logits_NEC=logits_NEC.astype(np.float32)), plain)
    for own in (table, replace(table, adjustment=adjustment)):
        found = replay(own, adjusted)
        assert found.exit_N.tolist() == expected.exit_N.tolist()
        assert found.prediction_N.tolist() == expected.prediction_N.tolist()
        np.testing.assert_allclose(found.confidence_N, expected.confidence_N, rtol=1e-5)
        assert replay(own, plain).prediction_N.tolist() == replay(table, plain).prediction_N.tolist()
    assert expected.prediction_N.tolist() != replay(table, plain).prediction_N.tolist()
    with pytest.raises(RequestError, match="compute them again"):
        replay(compute_confidences(table, plain.confidence_scale, combine=combine), adjusted)


def test_an_adjustment_of_another_network_is_refused(make_table: TableFactory) -> None:
    policy = replace(full_depth(4, 1.0), adjustment=LogitAdjustment((1.0,) * 4, (-1.0, -2.0)))
    with pytest.raises(RequestError, match="is for 4 exits and 2 classes, the logits have 4 and 6"):
        replay(make_table(), policy)


def test_confidences_of_another_scale_are_refused(make_table: TableFactory) -> None:
    with pytest.raises(RequestError, match="compute them again"):
        replay(compute_confidences(make_table(), 2.0), uniform_policy("s", 0.5, 4, 1.0))


def test_a_policy_for_another_network_is_refused(make_table: TableFactory) -> None:
    with pytest.raises(RequestError, match="for 3 exits, the exit table has 4"):
        replay(make_table(), full_depth(3, 1.0))


def test_empty_table(make_table: TableFactory) -> None:
    assert replay(make_table(examples=0), full_depth(4, 1.0)).exit_N.shape == (0,)
