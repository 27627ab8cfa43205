"""The geometric rule: shares, budgets, ties."""

from collections.abc import Callable

import numpy as np
import pytest

from elfnet.calibrate.geometric import geometric_policy
from elfnet.errors import RequestError
from elfnet.evaluate.confidence import ExitConfidences, compute_confidences
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.metrics import measure
from elfnet.evaluate.replay import replay
from elfnet.exits.policy import Policy

TableFactory = Callable[..., ExitTable]
BUDGETS = (0.1, 0.15, 0.3, 0.6, 0.77, 1.0, 1.15)


def _cost(confidences: ExitConfidences, policy: Policy) -> float:
    return measure(confidences.table, replay(confidences, policy)).mean_cost


def test_the_budget_is_met_closely_and_never_exceeded(make_table: TableFactory) -> None:
    for seed in range(3):
        confidences = compute_confidences(make_table(seed=seed))
        for budget in BUDGETS:
            cost = _cost(confidences, geometric_policy(confidences, budget))
            # One example that leaves an exit later costs at most 0.4 / 600; the rule may move three at once.
            assert budget - 3 * 0.4 / 600 <= cost <= budget + 1e-12


def test_shares_are_geometric(make_table: TableFactory) -> None:
    confidences = compute_confidences(make_table(examples=6000))
    for budget in (0.3, 0.6, 0.9):
        share_E = np.array(
            measure(confidences.table, replay(confidences, geometric_policy(confidences, budget))).exit_share
        )
        ratios = share_E[1:] / share_E[:-1]
        np.testing.assert_allclose(ratios, ratios[0], rtol=0.02)
    assert ratios[0] > 1  # 0.9 is above the mean of the four costs: most leave late


def test_the_most_confident_of_those_who_are_left_leave(make_table: TableFactory) -> None:
    """Against a loop with sorted lists, at the shares that the policy itself gives."""
    confidences = compute_confidences(make_table(examples=60))
    policy = geometric_policy(confidences, 0.6)
    replayed = replay(confidences, policy)
    here = set(range(60))
    for k in range(3):
        ranked = sorted(here, key=lambda i: -confidences.confidence_NE[i, k])
        leaving = set(np.flatnonzero(replayed.exit_N == k).tolist())
        assert leaving == set(ranked[: len(leaving)])
        last, following = ranked[len(leaving) - 1], ranked[len(leaving)]
        midway = (confidences.confidence_NE[last, k] + confidences.confidence_NE[following, k]) / 2
        assert policy.thresholds[k] == pytest.approx(midway, abs=1e-12)
        here -= leaving


def test_both_ends(make_table: TableFactory) -> None:
    confidences = compute_confidences(make_table())
    assert geometric_policy(confidences, 1.2).thresholds == (1.0, 1.0, 1.0)
    assert geometric_policy(confidences, 7.0).thresholds == (1.0, 1.0, 1.0)
    assert set(replay(confidences, geometric_policy(confidences, 0.1)).exit_N) == {0}


def test_ties_do_not_exceed_the_budget(make_table: TableFactory) -> None:
    # Five different confidences only: whole blocks of examples leave together.
    table = make_table()
    table.logits_NEC[:] = 0
    table.logits_NEC[:, :, 0] = (np.arange(600) // 120)[:, None]
    confidences = compute_confidences(table)
    costs = []
    for budget in BUDGETS:
        policy = geometric_policy(confidences, budget)
        costs.append(_cost(confidences, policy))
        assert costs[-1] <= budget + 1e-12
        assert all(count % 120 == 0 for count in np.bincount(replay(confidences, policy).exit_N))
    assert len(set(costs)) > 3
    # All alike: everybody or nobody.
    table.logits_NEC[:] = 0
    confidences = compute_confidences(table)
    for budget in BUDGETS:
        assert _cost(confidences, geometric_policy(confidences, budget)) in (
            pytest.approx(0.1),
            pytest.approx(0.5),
            pytest.approx(0.8),
        )


def test_few_examples_still_leave(make_table: TableFactory) -> None:
    for examples in (1, 2, 3, 5):
        confidences = compute_confidences(make_table(examples=examples))
        assert _cost(confidences, geometric_policy(confidences, 0.1)) == pytest.approx(0.1)
        assert _cost(confidences, geometric_policy(confidences, 0.7)) <= 0.7 + 1e-12
        assert _cost(confidences, geometric_policy(confidences, 1.2)) == pytest.approx(1.2)
    # Of two examples one leaves at once and one at the third exit, (0.1 + 0.8) / 2; the next step would cost 0.65.
    confidences = compute_confidences(make_table(examples=2))
    assert _cost(confidences, geometric_policy(confidences, 0.6)) == pytest.approx(0.45)


def test_names_and_scales(make_table: TableFactory) -> None:
    confidences = compute_confidences(make_table(), (1.0, 2.0, 3.0, 4.0))
    assert geometric_policy(confidences, 0.6).name == "geometric=0.6"
    policy = geometric_policy(confidences, 0.6, name="baseline")
    assert (policy.name, policy.confidence_scale) == ("baseline", (1.0, 2.0, 3.0, 4.0))


def test_one_exit(make_table: TableFactory) -> None:
    table = make_table()
    confidences = compute_confidences(make_table(logits_NEC=table.logits_NEC[:, -1:], cost_E=np.array([1.0])))
    assert geometric_policy(confidences, 1.0).thresholds == ()


def test_refusals(make_table: TableFactory) -> None:
    with pytest.raises(RequestError, match="calibrating on the test split is refused"):
        geometric_policy(compute_confidences(make_table(split="test")), 0.6)
    with pytest.raises(RequestError, match="no examples to calibrate on"):
        geometric_policy(compute_confidences(make_table(examples=0)), 0.6)
    with pytest.raises(RequestError, match=r"budget 0.05 is below the cheapest exit; give 0.1 or more"):
        geometric_policy(compute_confidences(make_table()), 0.05)
    with pytest.raises(RequestError, match="budget nan"):
        geometric_policy(compute_confidences(make_table()), float("nan"))
