"""The accuracy to expect: folds, intervals, and that no example is judged by thresholds that it chose."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from elfnet.calibrate import fit_points
from elfnet.calibrate.calibration_table import take_rows
from elfnet.calibrate.family_request import FamilyRequest, RiskPoints
from elfnet.calibrate.fit_points import fit_family
from elfnet.calibrate.held_out import held_out_accuracies, interval, losses_to_choose_by
from elfnet.calibrate.run import with_held_out
from elfnet.data.folds import stratified_folds
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.policy_replay import compute_confidences, replay
from elfnet.exits.policy import Policy, full_depth

TableFactory = Callable[..., ExitTable]


def test_folds_are_stratified() -> None:
    labels_N = np.repeat([0, 1, 2], [50, 23, 4])
    fold_N = stratified_folds(labels_N, 5, seed=3)
    for label in range(3):
        sizes = np.bincount(fold_N[labels_N == label], minlength=5)
        assert sizes.max() - sizes.min() <= 1
    assert np.array_equal(fold_N, stratified_folds(labels_N, 5, seed=3))
    assert not np.array_equal(fold_N, stratified_folds(labels_N, 5, seed=4))


def test_the_interval_is_stratified_by_class(make_table: TableFactory) -> None:
    labels_N = np.repeat(np.arange(6), [100, 50, 20, 10, 5, 5])
    table = replace(
        make_table(190),
        labels_N=labels_N,
        target_C=np.full(6, 1 / 6),
        class_counts_C=np.array([500, 200, 90, 50, 9, 5]),
    )
    right_N = np.arange(190) % 2 == 0
    found = interval(right_N, table)
    by_class = [right_N[labels_N == c] for c in range(6)]
    assert found.accuracy == pytest.approx(np.mean([one.mean() for one in by_class]))
    variance = 0.0
    for one in by_class:
        p = (one.sum() + 1) / (len(one) + 2)
        variance += (1 / 6) ** 2 * p * (1 - p) / len(one)
    assert found.high - found.low == pytest.approx(2 * 1.96 * variance**0.5)
    certain = interval(np.ones(190, dtype=np.bool_), table)
    assert certain.accuracy == pytest.approx(1.0)
    assert certain.high == 1.0
    assert certain.low < 0.99


def test_the_spread_between_networks_widens_the_interval(make_table: TableFactory) -> None:
    table = make_table(1800)
    network_N = np.repeat(np.arange(3), 600)
    right_N = np.concatenate([np.arange(600) < share for share in (300, 360, 420)])
    alone, spread = interval(right_N, table), interval(right_N, table, network_N)
    assert spread.accuracy == alone.accuracy
    # The accuracies of the networks have a standard deviation of 0.1, and the final network is a fourth one.
    squares = [((one.accuracy - one.low) / 1.96) ** 2 for one in (alone, spread)]
    assert squares[1] - squares[0] == pytest.approx(4 / 3 * 0.1**2)


def test_the_upper_end_allows_for_the_examples_that_the_final_network_has_more(make_table: TableFactory) -> None:
    """The networks of three folds learn from two thirds; the error may fall with the square root of that."""
    network_N = np.repeat(np.arange(3), 600)
    found = interval(np.arange(1800) % 2 == 0, make_table(1800), network_N)
    margin = found.accuracy - found.low
    assert 1 - found.high == pytest.approx((2 / 3) ** 0.5 * (1 - found.accuracy - margin))


def test_no_example_is_judged_by_what_it_chose(make_table: TableFactory) -> None:
    table = make_table(300)
    seen: list[ExitTable] = []

    def fit(part: ExitTable) -> dict[str, Policy]:
        seen.append(part)
        return {"full": full_depth(part.exits, part.confidence_scale)}

    found = held_out_accuracies(table, fit)["full"]
    assert [part.examples for part in seen] == [240] * 5
    # Full depth needs no fit, so its cross-validated accuracy is its accuracy.
    assert found.accuracy == pytest.approx(float((table.logits_NEC[:, -1].argmax(axis=1) == table.labels_N).mean()))


@pytest.mark.slow
def test_fitted_points_are_estimated_lower_than_on_their_own_examples(make_table: TableFactory) -> None:
    """With few examples and many thresholds, the accuracy on the fitted examples is too high on average."""
    request = FamilyRequest(search=(0.3, 0.5, 0.8), budgets=(0.5,), geometric_budgets=())
    gaps = []
    for seed in range(4):
        table = make_table(90, seed=seed)
        family = with_held_out(fit_family(table, request), table, request)
        point = family.point("budget=0.5")
        assert point.held_out is not None
        assert point.held_out.low < point.held_out.accuracy < point.held_out.high
        gaps.append(point.expected.accuracy - point.held_out.accuracy)
        assert any(note.startswith("accuracy to expect") for note in family.notes)
    assert np.mean(gaps) > 0


@pytest.mark.slow
def test_intervals_hold_as_often_as_they_say(population: ExitTable) -> None:
    """On a known population, about 95 % of the intervals hold its balanced accuracy; 90 % must."""
    request = FamilyRequest(
        search=(0.5, 0.8), budgets=(0.5,), geometric_budgets=(), mix="balanced", risk=RiskPoints(epsilons=())
    )
    rng = np.random.default_rng(0)
    rows_of_class = [np.flatnonzero(population.labels_N == c) for c in range(population.classes)]
    inside = []
    for _ in range(12):
        drawn = [rng.choice(rows, size) for rows, size in zip(rows_of_class, (120, 60, 30, 15, 8), strict=True)]
        rows = np.concatenate(drawn)
        table = replace(population, logits_NEC=population.logits_NEC[rows], labels_N=population.labels_N[rows])
        family = with_held_out(fit_family(table, request), table, request)
        for name in ("full", "budget=0.5", "within-1"):
            point = family.point(name)
            assert point.held_out is not None
            right_N = replay(population, point.policy).prediction_N == population.labels_N
            accuracy = float(np.mean([right_N[rows].mean() for rows in rows_of_class]))
            inside.append(point.held_out.low <= accuracy <= point.held_out.high)
    assert np.mean(inside) >= 0.9


@pytest.mark.parametrize(("judged", "keeps_to_it"), [(True, True), (False, False)])
def test_a_loss_is_kept_on_examples_that_did_not_choose_the_thresholds(
    population: ExitTable, monkeypatch: pytest.MonkeyPatch, judged: bool, keeps_to_it: bool
) -> None:
    """Thresholds that lose 2 points on the 250 examples that choose them lose more on others: these are not taken."""
    if not judged:
        monkeypatch.setattr(
            fit_points, "losses_to_choose_by", lambda _table, _compute, limits: {one: one[0] for one in limits}
        )
    request = FamilyRequest(search=(0.5,), budgets=(), geometric_budgets=(), floors_points=(2.0,), scales="own")
    request = replace(request, combine="off", risk=RiskPoints(epsilons=()))
    lost = []
    for chosen in np.array_split(np.random.default_rng(0).permutation(population.examples), 12):
        policy = fit_family(take_rows(population, chosen), request).point("within-2").policy
        others = take_rows(population, np.setdiff1d(np.arange(population.examples), chosen))
        full_N = others.logits_NEC[:, -1].argmax(axis=1) == others.labels_N
        lost.append(full_N.mean() - (replay(others, policy).prediction_N == others.labels_N).mean())
    assert bool(np.mean(lost) <= 0.02) is keeps_to_it


def test_the_loss_to_choose_by_is_the_permitted_one_where_examples_are_many(make_table: TableFactory) -> None:
    """Exits that all answer alike lose nothing anywhere; nine examples are too few to judge."""
    table = make_table(3000)
    logits_NEC = np.repeat(table.logits_NEC[:, -1:], 4, axis=1)
    limits = [(0.01, None), (0.01, "worst")]
    assert losses_to_choose_by(replace(table, logits_NEC=logits_NEC), compute_confidences, limits) == {
        (0.01, None): 0.01,
        (0.01, "worst"): 0.01,
    }
    assert losses_to_choose_by(take_rows(table, np.arange(9)), compute_confidences, limits) == dict.fromkeys(limits)


def test_accurate_is_not_stated_beside_full_if_it_is_full(make_table: TableFactory) -> None:
    request = FamilyRequest(search=["0.5"], budgets=(0.5,), floors_points=(), risk=RiskPoints(epsilons=()))
    # All exits agree, so none is better than the last.
    table = make_table(logits_NEC=np.repeat(make_table().logits_NEC[:, -1:], 4, axis=1))
    family = with_held_out(fit_family(table, request), table, request)
    assert family.point("accurate").same_as == "full"
    note = next(note for note in family.notes if note.startswith("accuracy to expect"))
    assert ": full " in note
    assert "budget=0.5 " in note
    assert "accurate " not in note
