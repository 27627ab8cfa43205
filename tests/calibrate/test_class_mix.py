"""Operating points for a class mix: weighted figures equal those of a table in which examples are repeated."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from elfnet.calibrate.class_mix import exits_that_beat_the_last, mean_and_error, parse_mix, weighted_to
from elfnet.calibrate.family_request import FamilyRequest, RiskPoints
from elfnet.calibrate.fit_points import fit_family
from elfnet.calibrate.line_search import measured_point
from elfnet.calibrate.per_exit_search import family_for_budgets, thresholds_for_floor
from elfnet.calibrate.point_family import Family
from elfnet.calibrate.risk.bounds import TooFewExamplesError
from elfnet.calibrate.risk.control import control_risk
from elfnet.errors import RequestError
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.metrics import measure
from elfnet.evaluate.policy_replay import compute_confidences, replay

TableFactory = Callable[..., ExitTable]
REPEATS = np.array([1, 1, 2, 2, 4, 4])
"""How often each class is repeated in the oracle."""


@pytest.fixture
def skewed(make_table: TableFactory) -> ExitTable:
    """40 examples of classes 0 and 1, 20 of 2 and 3, 10 of 4 and 5: repeated, 40 of each."""
    whole = make_table(examples=600)
    rows = np.concatenate([np.flatnonzero(whole.labels_N == c)[: 40 // REPEATS[c]] for c in range(6)])
    return take(whole, rows)


def take(table: ExitTable, rows: np.ndarray) -> ExitTable:
    return replace(table, logits_NEC=table.logits_NEC[rows], labels_N=table.labels_N[rows])


def repeated(table: ExitTable) -> ExitTable:
    return take(table, np.repeat(np.arange(table.examples), REPEATS[table.labels_N]))


def test_weights_give_every_class_its_share(skewed: ExitTable) -> None:
    weight_N = weighted_to(skewed, "balanced").table.example_weights()
    assert weight_N.mean() == pytest.approx(1)
    np.testing.assert_allclose(np.bincount(skewed.labels_N, weights=weight_N), skewed.examples / 6)
    given_N = weighted_to(skewed, (3, 0, 1, 0, 0, 0)).table.example_weights()
    np.testing.assert_allclose(
        np.bincount(skewed.labels_N, weights=given_N)[[0, 1, 2]], skewed.examples * np.array([0.75, 0, 0.25])
    )


def test_metrics_equal_those_of_repeated_examples(skewed: ExitTable) -> None:
    mixed = weighted_to(skewed, "balanced").table
    policy = compute_confidences(skewed).uniform("s", 0.6)
    one, other = (measure(t, replay(compute_confidences(t), policy)) for t in (mixed, repeated(skewed)))
    assert one.accuracy == pytest.approx(other.accuracy)
    assert one.accuracy == pytest.approx(one.balanced_accuracy)
    assert one.mean_cost == pytest.approx(other.mean_cost)
    assert one.exit_share == pytest.approx(other.exit_share)
    for group in ("many", "medium", "few"):
        assert one.accuracy_by_group[group] == pytest.approx(other.accuracy_by_group[group])
    assert one.n == skewed.examples


@pytest.mark.usefixtures("only_counts")
def test_thresholds_equal_those_of_repeated_examples(skewed: ExitTable) -> None:
    mixed, oracle = (compute_confidences(t) for t in (weighted_to(skewed, "balanced").table, repeated(skewed)))
    for one, other in zip(*(family_for_budgets(c, [0.4, 0.8]) for c in (mixed, oracle)), strict=True):
        found = [measured_point(oracle, policy, rule="budget").expected for policy in (one, other)]
        assert found[0].accuracy == pytest.approx(found[1].accuracy)
        assert found[0].mean_cost == pytest.approx(found[1].mean_cost)
    floor = 0.9 * measured_point(mixed, mixed.uniform("full", 1.0), rule="floor").expected.accuracy
    costs = [
        measured_point(oracle, thresholds_for_floor(c, floor), rule="floor").expected.mean_cost for c in (mixed, oracle)
    ]
    assert costs[0] == pytest.approx(costs[1])


def test_long_tailed_training_data_mean_balanced_and_label_shift_is_stated(skewed: ExitTable) -> None:
    mixed = weighted_to(skewed, "auto")
    assert mixed.table.target_C is not None
    assert "label shift" in mixed.notes[0]
    even = replace(skewed, class_counts_C=np.full(6, 50))
    assert weighted_to(even, "auto").table.target_C is None
    assert weighted_to(skewed, "as-is").table.target_C is None


def test_a_split_that_has_the_mix_is_left_as_it_is(make_table: TableFactory) -> None:
    assert weighted_to(make_table(), "balanced").table.target_C is None


def test_classes_without_examples_are_named(skewed: ExitTable) -> None:
    table = take(skewed, np.flatnonzero(skewed.labels_N != 4))
    assert "without calibration examples, so not in the figures: e" in weighted_to(table, "balanced").notes[-1]


def test_a_mix_must_fit_the_classes(skewed: ExitTable) -> None:
    assert parse_mix("2,1") == (2.0, 1.0)
    with pytest.raises(RequestError, match=r"class mix 'even' is unknown"):
        parse_mix("even")
    with pytest.raises(RequestError, match=r"class mix 2,1 has 2 numbers, and the data have 6 classes; give one"):
        weighted_to(skewed, (2.0, 1.0))
    with pytest.raises(RequestError, match=r"class mix 1,1,1,1,1,-2 must be numbers of 0 or more"):
        weighted_to(skewed, (1, 1, 1, 1, 1, -2))


def test_a_promise_pays_for_the_rarest_class(make_table: TableFactory) -> None:
    whole = make_table(examples=6000)
    rare = np.flatnonzero((whole.labels_N != 5) | (np.arange(6000) < 600))
    table = take(whole, rare)
    assert control_risk(table, epsilon=0.03, delta=0.05).n_candidates
    mixed = weighted_to(table, "balanced").table
    with pytest.raises(
        TooFewExamplesError, match=r"needs at least \d+ examples to certify on \(the rarest class counts"
    ):
        control_risk(mixed, epsilon=0.003, delta=0.05)
    result = control_risk(mixed, epsilon=0.05, delta=0.05)
    assert result.empirical_risk <= 0.05


def test_a_promise_needs_every_class(skewed: ExitTable) -> None:
    mixed = weighted_to(take(skewed, np.flatnonzero(skewed.labels_N != 4)), "balanced").table
    needed = r"needs at least 3 examples of class 'e' to certify on, and none of it .*; calibrate on 6 or more images"
    with pytest.raises(TooFewExamplesError, match=needed):
        control_risk(mixed, epsilon=0.2, delta=0.05)


def test_a_promise_names_the_class_that_lacks_most(skewed: ExitTable) -> None:
    some = take(skewed, np.flatnonzero(skewed.labels_N < 4))
    mixed = weighted_to(some, (100.0, 20.0, 5.0, 5.0, 1.0, 60.0)).table
    needed = r"needs at least 6 examples of class 'f' .* none of it .*, and too few of 1 more; calibrate on 12 "
    with pytest.raises(TooFewExamplesError, match=needed):
        control_risk(mixed, epsilon=0.2, delta=0.05)
    mixed = weighted_to(some, (100.0, 20.0, 5.0, 5.0, 1.0, 0.0)).table
    with pytest.raises(TooFewExamplesError, match=r"needs at least 1 example of class 'e' to certify on, and none of"):
        control_risk(mixed, epsilon=0.2, delta=0.05)


def test_weighted_promises_hold_as_often_as_they_say(make_table: TableFactory) -> None:
    """On a population with known risk, a promise under label shift is broken in at most a share delta of the draws."""
    population = make_table(examples=12_000, seed=5)
    rng = np.random.default_rng(0)
    share_C = np.array([0.4, 0.25, 0.15, 0.1, 0.06, 0.04])
    by_class = [np.flatnonzero(population.labels_N == c) for c in range(6)]
    broken, draws, epsilon = 0, 40, 0.08
    full_N = population.logits_NEC[:, -1].argmax(axis=1) == population.labels_N
    for draw in range(draws):
        rows = np.concatenate([rng.choice(by_class[c], int(2400 * share_C[c])) for c in range(6)])
        result = control_risk(
            weighted_to(take(population, rows), "balanced").table, epsilon=epsilon, delta=0.1, seed=draw
        )
        early = replay(compute_confidences(population, result.policy.confidence_scale), result.policy)
        broken += float((full_N.astype(int) - (early.prediction_N == population.labels_N)).mean()) > epsilon
    assert broken <= 0.1 * draws


def test_accurate_is_full_unless_it_is_better_beyond_noise(make_table: TableFactory) -> None:
    request = FamilyRequest(search=["0.5", "0.9"], risk=RiskPoints(epsilons=()))
    # Early exits know nothing that the last one does not: most agree with it, and a few guess.
    logits_NEC = np.repeat(make_table().logits_NEC[:, -1:], 4, axis=1)
    logits_NEC[::20, :3] = np.random.default_rng(2).normal(size=(30, 3, 6))
    family = fit_family(make_table(logits_NEC=logits_NEC), request)
    assert family.point("accurate").policy.thresholds == family.point("full").policy.thresholds
    assert family.default.name == "full"
    # The third exit is right and sure, and the last one guesses.
    table = make_table()
    logits_NEC = table.logits_NEC.copy()
    logits_NEC[np.arange(600), 2, table.labels_N] += 9
    logits_NEC[:, 3] = np.random.default_rng(1).normal(size=(600, 6))
    spoilt = fit_family(make_table(logits_NEC=logits_NEC), request)
    assert spoilt.default.name == "accurate"
    assert any(note.startswith("exit 3 alone is") for note in spoilt.notes)


def test_accurate_may_have_thresholds_per_exit(make_table: TableFactory) -> None:
    """The second exit knows half of the examples, and the last one the others: only together are they right."""
    table = make_table()
    logits_NEC = np.zeros_like(table.logits_NEC)
    known_N = np.arange(600) % 2 == 0
    logits_NEC[known_N, 1, table.labels_N[known_N]] = 8
    logits_NEC[~known_N, 3, table.labels_N[~known_N]] = 8
    family = fit_family(make_table(logits_NEC=logits_NEC), FamilyRequest(search=["0.1"], budgets=(0.9,)))
    accurate = family.point("accurate")
    assert accurate.rule == "budget"
    assert accurate.expected.balanced_accuracy > 0.99 > family.point("full").expected.balanced_accuracy
    assert accurate.expected.mean_cost <= 1
    assert family.default == accurate


def test_noise_is_no_gain() -> None:
    correct_NE = np.zeros((100, 2), dtype=np.bool_)
    correct_NE[:2, 0] = True
    assert exits_that_beat_the_last(correct_NE, np.ones(100)) == []
    correct_NE[:50, 0] = True
    assert exits_that_beat_the_last(correct_NE, np.ones(100)) == [(1, 0.5)]
    assert mean_and_error(np.array([1.0, 0.0, 1.0, 0.0]), np.ones(4)) == (0.5, 0.25)


def test_the_mix_is_stored_with_the_points(skewed: ExitTable) -> None:
    request = FamilyRequest(search=(0.5,), budgets=(0.6,), geometric_budgets=(), mix="balanced")
    family = fit_family(skewed, request)
    assert family.class_mix == pytest.approx((1 / skewed.classes,) * skewed.classes)
    assert Family.from_dict(family.to_dict()) == family
    assert "class_mix" not in fit_family(skewed, replace(request, mix="as-is")).to_dict()
