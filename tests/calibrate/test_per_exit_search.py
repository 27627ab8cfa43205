"""Thresholds per exit, against brute force and against one threshold for all."""

from collections.abc import Callable
from itertools import pairwise, product

import numpy as np
import pytest
from numpy.typing import NDArray

from elfnet.calibrate import threshold_search
from elfnet.calibrate.confidence_scale import expected_correct
from elfnet.calibrate.per_exit_search import (
    family_for_budgets,
    geometric_policy,
    thresholds_for_budget,
    thresholds_for_floor,
)
from elfnet.calibrate.threshold_space import ThresholdSpace
from elfnet.errors import RequestError
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.metrics import measure
from elfnet.evaluate.policy_replay import ExitConfidences, compute_confidences, replay
from elfnet.evaluate.trade_off import Sweep, spread_thresholds, sweep, sweep_uniform
from elfnet.exits.policy import NEVER, Policy
from elfnet.run.results import Metrics

TableFactory = Callable[..., ExitTable]
BUDGETS = (0.1, 0.2, 0.4, 0.55, 0.7, 0.9, 1.1, 1.2)


def _measure(confidences: ExitConfidences, policy: Policy) -> Metrics:
    return measure(confidences.table, replay(confidences, policy))


def _worst(metrics: Metrics) -> float:
    return min(accuracy for accuracy in metrics.accuracy_by_group.values() if accuracy is not None)


def _every_point(confidences: ExitConfidences) -> Sweep:
    axes = [spread_thresholds(confidence_N[:, None], 2000) for confidence_N in confidences.confidence_NE.T[:-1]]
    return sweep(confidences, np.array(list(product(*axes))))


def _every_uniform_point(confidences: ExitConfidences) -> Sweep:
    return sweep_uniform(confidences, spread_thresholds(confidences.confidence_NE[:, :-1], 100_000))


HEADS = np.array([0.05, 0.2, 0.1, 0.0])


@pytest.mark.parametrize("head_cost_E", [None, HEADS], ids=["heads always run", "unused heads are not run"])
@pytest.mark.usefixtures("only_counts")
def test_small_tables_against_brute_force(make_table: TableFactory, head_cost_E: NDArray[np.float64] | None) -> None:
    for seed in range(4):
        confidences = compute_confidences(make_table(examples=24, seed=seed, head_cost_E=head_cost_E))
        every = _every_point(confidences)
        assert len(every.accuracy_P) == 25**3
        for policy, budget in zip(family_for_budgets(confidences, BUDGETS), BUDGETS, strict=True):
            metrics = _measure(confidences, policy)
            assert metrics.mean_cost <= budget + 1e-12
            allowed = every.mean_cost_P <= budget + 1e-12
            best = every.accuracy_P[allowed].max()
            assert metrics.accuracy == pytest.approx(best)
            if head_cost_E is None:
                # Of equally accurate points the one where examples leave latest.
                equal = allowed & (every.accuracy_P == best)
                assert metrics.mean_cost == pytest.approx(every.mean_cost_P[equal].max())


@pytest.mark.parametrize("head_cost_E", [None, HEADS], ids=["heads always run", "unused heads are not run"])
@pytest.mark.usefixtures("only_counts")
def test_small_tables_against_brute_force_floors(
    make_table: TableFactory, head_cost_E: NDArray[np.float64] | None
) -> None:
    for seed in range(4):
        confidences = compute_confidences(make_table(examples=24, seed=seed, head_cost_E=head_cost_E))
        every = _every_point(confidences)
        full = _measure(confidences, Policy("full", (NEVER,) * 3, confidences.confidence_scale))
        for group, accuracy_P, reachable in (
            (None, every.accuracy_P, full.accuracy),
            ("worst", every.accuracy_PG.min(axis=1), _worst(full)),
            ("few", every.accuracy_PG[:, 2], full.accuracy_by_group["few"]),
        ):
            assert reachable is not None
            for floor in (reachable, 0.9 * reachable, 0.5 * reachable, 0.0):
                metrics = _measure(confidences, thresholds_for_floor(confidences, floor, group=group))
                enough = accuracy_P >= floor - 1e-12
                cheapest = every.mean_cost_P[enough].min()
                assert metrics.mean_cost == pytest.approx(cheapest)
                reached = {None: metrics.accuracy, "worst": _worst(metrics)}.get(
                    group, metrics.accuracy_by_group["few"]
                )
                equal = enough & np.isclose(every.mean_cost_P, cheapest)
                assert reached == pytest.approx(accuracy_P[equal].max())


@pytest.mark.usefixtures("only_counts")
def test_never_worse_than_one_threshold_for_all(make_table: TableFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    # With a grid that is good for nothing, the guarantee rests on the uniform start alone.
    for cells in (2**18, 8):
        monkeypatch.setattr(threshold_search, "GRID_CELLS", cells)
        for seed in range(2):
            confidences = compute_confidences(make_table(seed=seed))
            uniform = _every_uniform_point(confidences)
            gains = []
            for policy, budget in zip(family_for_budgets(confidences, BUDGETS), BUDGETS, strict=True):
                metrics = _measure(confidences, policy)
                assert metrics.mean_cost <= budget + 1e-12
                gains.append(metrics.accuracy - uniform.accuracy_P[uniform.mean_cost_P <= budget + 1e-12].max())
            assert min(gains) >= -1e-12
            assert max(gains) > 0.005
            for floor in (0.3, 0.5, 0.6):
                cost = _measure(confidences, thresholds_for_floor(confidences, floor, group="worst")).mean_cost
                enough = np.nanmin(uniform.accuracy_PG, axis=1) >= floor
                assert cost <= uniform.mean_cost_P[enough].min() + 1e-12


@pytest.mark.usefixtures("only_counts")
def test_a_coarse_grid_is_made_up_for_by_small_steps(make_table: TableFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threshold_search, "GRID_CELLS", 64)
    missed = 0
    for seed in range(2):
        confidences = compute_confidences(make_table(examples=60, seed=seed))
        every = _every_point(confidences)
        for budget in (0.3, 0.55, 0.7, 0.9):
            accuracy = _measure(confidences, thresholds_for_budget(confidences, budget)).accuracy
            missed += round(60 * (every.accuracy_P[every.mean_cost_P <= budget + 1e-12].max() - accuracy))
    # Right answers short of the optimum in eight requests; changing one threshold at a time would miss 11.
    assert 0 <= missed <= 5


def test_a_larger_budget_is_never_expected_to_be_less_accurate(make_table: TableFactory) -> None:
    confidences = compute_confidences(make_table())
    expected_NE = expected_correct(confidences)
    budgets = np.linspace(0.1, 1.2, 12).tolist()
    family = family_for_budgets(confidences, budgets[::-1])
    assert [policy.name for policy in family] == [f"budget={budget:g}" for budget in budgets[::-1]]
    exits = [replay(confidences, policy).exit_N for policy in family]
    accuracies = [expected_NE[np.arange(len(exit_N)), exit_N].mean() for exit_N in exits]
    assert all(larger >= smaller - 1e-9 for larger, smaller in pairwise(accuracies))
    assert family_for_budgets(confidences, budgets[::-1]) == family


def test_the_worst_group_is_protected(make_table: TableFactory) -> None:
    # Few-shot classes (4, 5) are confidently wrong at the first exit: saving there comes out of the tail.
    table = make_table()
    tail = table.labels_N >= 4
    table.logits_NEC[tail, 0] = 0
    table.logits_NEC[tail, 0, 0] = 6
    table.logits_NEC[~tail, 0] = 0
    table.logits_NEC[np.flatnonzero(~tail), 0, table.labels_N[~tail]] = 6
    confidences = compute_confidences(table)
    overall = _measure(confidences, thresholds_for_floor(confidences, 0.6))
    protected = _measure(confidences, thresholds_for_floor(confidences, 0.6, group="worst"))
    assert _worst(overall) == 0.0
    assert overall.mean_cost == pytest.approx(0.1)
    assert _worst(protected) >= 0.6
    assert protected.mean_cost > overall.mean_cost


def test_thresholds_lie_midway_between_confidences(make_table: TableFactory) -> None:
    confidences = compute_confidences(make_table())
    for threshold, confidence_N in zip(
        thresholds_for_budget(confidences, 0.6).thresholds, confidences.confidence_NE.T, strict=False
    ):
        below, above = confidence_N[confidence_N <= threshold].max(), confidence_N[confidence_N > threshold].min()
        assert threshold == pytest.approx((below + above) / 2, abs=1e-12)


def test_of_equal_thresholds_the_highest(make_table: TableFactory) -> None:
    # All exits answer alike: leaving early gains nothing, so with enough budget nobody does.
    table = make_table()
    table.logits_NEC[:] = table.logits_NEC[:, -1:, :]
    assert thresholds_for_budget(compute_confidences(table), 1.2).thresholds == (NEVER, NEVER, NEVER)
    # All leave at the first exit: what the others would do makes no difference.
    assert thresholds_for_budget(compute_confidences(make_table()), 0.1).thresholds == (0.0, NEVER, NEVER)


def test_counts_agree_with_the_sweep(make_table: TableFactory) -> None:
    # Rounded logits: many equal confidences, some of them 1.
    table = make_table(examples=90)
    confidences = compute_confidences(
        make_table(examples=90, logits_NEC=np.round(table.logits_NEC)), (1.0, 2.0, 40.0, 40.0)
    )
    assert (confidences.confidence_NE[:, 2] == 1.0).any()
    space = ThresholdSpace(confidences)
    axes = [np.arange(1, len(candidates), 2) for candidates in space.candidates]
    points = [c[axis] for c, axis in zip(space.candidates, axes, strict=True)]
    figures, counted = sweep(confidences, np.array(list(product(*points)))), space.grid(axes)
    np.testing.assert_allclose(counted.right_P, figures.accuracy_P * 90, atol=1e-9)
    np.testing.assert_allclose(counted.right_PG / space.size_G, figures.accuracy_PG, atol=1e-12)
    np.testing.assert_allclose(counted.cost_P, figures.mean_cost_P, atol=1e-9)
    thresholds_P, counted = space.uniform()
    figures = sweep_uniform(confidences, thresholds_P)
    np.testing.assert_allclose(counted.right_P, figures.accuracy_P * 90, atol=1e-9)
    np.testing.assert_allclose(counted.cost_P, figures.mean_cost_P, atol=1e-9)
    # Positions stand for the same decisions as the thresholds that they are found for.
    for s in (0.0, 0.3, 0.77, 0.999, 1.0):
        same = [c[p] for c, p in zip(space.candidates, space.positions((s, s, s)), strict=True)]
        for k, threshold in enumerate(same):
            np.testing.assert_array_equal(
                confidences.confidence_NE[:, k] > threshold, confidences.confidence_NE[:, k] > s
            )


def test_a_floor_holds_on_the_table_and_in_expectation(make_table: TableFactory) -> None:
    confidences = compute_confidences(make_table(examples=90))
    expected_NE = expected_correct(confidences)
    for floor in (0.5, 0.6, 0.7):
        exit_N = replay(confidences, thresholds_for_floor(confidences, floor)).exit_N
        rows = np.arange(90)
        assert confidences.correct_NE[rows, exit_N].mean() >= floor - 1e-9
        assert expected_NE[rows, exit_N].mean() >= floor - 1e-9


def test_few_examples_mislead_expected_accuracy_less_than_counts(make_table: TableFactory) -> None:
    unseen = compute_confidences(make_table(examples=6000, seed=1000), 1.5)
    found: dict[bool, list[float]] = {False: [], True: []}
    for seed in range(12):
        confidences = compute_confidences(make_table(examples=48, seed=seed), 1.5)
        for expected, accuracies in found.items():
            expected_NE = expected_correct(confidences) if expected else None
            search = threshold_search.ThresholdSearch(confidences, expected_NE=expected_NE, cells=2**12)
            for budget in (0.5, 0.8, 1.1):
                thresholds = search.best(threshold_search.WithinBudget(budget))
                accuracies.append(_measure(unseen, unseen.policy("found", thresholds)).accuracy)
    assert np.mean(found[True]) > np.mean(found[False]) + 0.01


@pytest.mark.parametrize("exits", [1, 2, 3, 6])
def test_any_number_of_exits(make_table: TableFactory, exits: int) -> None:
    logits_NEC = np.concatenate([make_table().logits_NEC, make_table(seed=1).logits_NEC], axis=1)[:, :exits]
    cost_E = np.linspace(0.3, 1.0, exits) if exits > 1 else np.ones(1)
    confidences = compute_confidences(make_table(logits_NEC=logits_NEC, cost_E=cost_E))
    policy = thresholds_for_budget(confidences, 1.0, name="mine")
    assert (policy.name, len(policy.thresholds)) == ("mine", exits - 1)
    full = _measure(confidences, Policy("full", (NEVER,) * (exits - 1), confidences.confidence_scale))
    assert _measure(confidences, policy).accuracy >= full.accuracy
    floor = thresholds_for_floor(confidences, full.accuracy, name="floor")
    assert _measure(confidences, floor).mean_cost <= 1.0
    assert floor.name == "floor"


def test_refusals(make_table: TableFactory) -> None:
    confidences = compute_confidences(make_table())
    for split, examples, message in (
        ("test", 60, "calibrating on the test split is refused"),
        ("calibration", 0, "no examples to calibrate on"),
    ):
        refused = compute_confidences(make_table(split=split, examples=examples))
        with pytest.raises(RequestError, match=message):
            thresholds_for_budget(refused, 0.6)
        with pytest.raises(RequestError, match=message):
            thresholds_for_floor(refused, 0.6)
        with pytest.raises(RequestError, match=message):
            family_for_budgets(refused, [0.6])
    with pytest.raises(RequestError, match=r"budget 0\.09 is below the cheapest exit; give 0\.1 or more"):
        thresholds_for_budget(confidences, 0.09)
    with pytest.raises(RequestError, match="budget nan"):
        family_for_budgets(confidences, [0.6, float("nan")])
    with pytest.raises(RequestError, match=r"budget=0\.6 is given twice"):
        family_for_budgets(confidences, [0.6, 0.7, 0.6])
    with pytest.raises(RequestError, match=r"'rare' is unknown.*many, medium, few, worst"):
        thresholds_for_floor(confidences, 0.5, group="rare")
    with pytest.raises(RequestError, match="accuracy floor 60 is not between 0 and 1"):
        thresholds_for_floor(confidences, 60)
    no_few = compute_confidences(make_table(class_counts_C=np.array([500, 101, 100, 20, 50, 50])))
    with pytest.raises(RequestError, match=r"'few' has no examples.*many, medium, worst"):
        thresholds_for_floor(no_few, 0.5, group="few")
    assert thresholds_for_floor(no_few, 0.5, group="worst").name == "floor=0.5"


@pytest.mark.parametrize("group", [None, "worst", "medium"])
def test_a_floor_out_of_reach_says_what_is_reachable(make_table: TableFactory, group: str | None) -> None:
    confidences = compute_confidences(make_table())
    full = _measure(confidences, Policy("full", (NEVER,) * 3, confidences.confidence_scale))
    reachable = {None: full.accuracy, "worst": _worst(full)}.get(group, full.accuracy_by_group["medium"])
    assert reachable is not None
    with pytest.raises(RequestError, match="above what full depth reaches; give") as refused:
        thresholds_for_floor(confidences, reachable + 0.001, group=group)
    stated = float(str(refused.value).split("give ")[1].split()[0])
    assert reachable - 1e-4 <= stated <= reachable
    thresholds_for_floor(confidences, stated, group=group)


GEOMETRIC_BUDGETS = (0.1, 0.15, 0.3, 0.6, 0.77, 1.0, 1.15)


def _cost(confidences: ExitConfidences, policy: Policy) -> float:
    return measure(confidences.table, replay(confidences, policy)).mean_cost


def test_the_budget_is_met_closely_and_never_exceeded(make_table: TableFactory) -> None:
    for seed in range(3):
        confidences = compute_confidences(make_table(seed=seed))
        for budget in GEOMETRIC_BUDGETS:
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
    for budget in GEOMETRIC_BUDGETS:
        policy = geometric_policy(confidences, budget)
        costs.append(_cost(confidences, policy))
        assert costs[-1] <= budget + 1e-12
        assert all(count % 120 == 0 for count in np.bincount(replay(confidences, policy).exit_N))
    assert len(set(costs)) > 3
    # All alike: everybody or nobody.
    table.logits_NEC[:] = 0
    confidences = compute_confidences(table)
    for budget in GEOMETRIC_BUDGETS:
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


def test_refusals_of_the_geometric_rule(make_table: TableFactory) -> None:
    with pytest.raises(RequestError, match="calibrating on the test split is refused"):
        geometric_policy(compute_confidences(make_table(split="test")), 0.6)
    with pytest.raises(RequestError, match="no examples to calibrate on"):
        geometric_policy(compute_confidences(make_table(examples=0)), 0.6)
    with pytest.raises(RequestError, match=r"budget 0.05 is below the cheapest exit; give 0.1 or more"):
        geometric_policy(compute_confidences(make_table()), 0.05)
    with pytest.raises(RequestError, match="budget nan"):
        geometric_policy(compute_confidences(make_table()), float("nan"))
