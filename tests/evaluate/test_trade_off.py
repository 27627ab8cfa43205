"""The accuracy-FLOPs curve."""

import json
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

from elfnet.data.long_tail import GROUP_NAMES
from elfnet.errors import RequestError
from elfnet.evaluate import trade_off
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.metrics import measure
from elfnet.evaluate.policy_replay import ExitConfidences, compute_confidences, replay
from elfnet.evaluate.trade_off import Sweep, curve, efficient, spread_thresholds, sweep, sweep_uniform
from elfnet.exits.policy import Policy, uniform_policy

TableFactory = Callable[..., ExitTable]


def test_every_point_equals_its_replay(make_table: TableFactory) -> None:
    table = make_table()
    derived = compute_confidences(table, 2.0)
    points = curve(derived, points=30)
    assert len(points) == 30
    for point in points:
        metrics = measure(table, replay(derived, uniform_policy("s", point.threshold, 4, 2.0)))
        assert point.accuracy == pytest.approx(metrics.accuracy)
        assert point.mean_cost == pytest.approx(metrics.mean_cost)
        assert point.accuracy_by_group == pytest.approx(metrics.accuracy_by_group)
        assert point.exit_share == pytest.approx(metrics.exit_share)


def test_the_ends_are_first_exit_and_full_depth(make_table: TableFactory) -> None:
    points = curve(compute_confidences(make_table()), points=20)
    assert points[0].mean_cost == pytest.approx(0.1)
    assert points[-1].mean_cost == pytest.approx(1.2)
    costs = [point.mean_cost for point in points]
    assert costs == sorted(costs)
    assert max(np.diff(costs)) < 0.2  # spread over the whole range


def test_thresholds_lie_midway_between_neighbouring_observations() -> None:
    observed = np.random.default_rng(0).uniform(0.1, 0.9, size=(40, 3))
    thresholds = spread_thresholds(observed, 25)
    assert thresholds[0] == 0.0
    assert thresholds[-1] == 1.0
    assert (np.diff(thresholds) > 0).all()
    assert len(thresholds) == 25
    flat = sorted(observed.ravel().tolist())
    midpoints = [(low + high) / 2 for low, high in pairwise(flat)]
    for threshold in thresholds[1:-1]:
        assert min(abs(threshold - midpoint) for midpoint in midpoints) < 1e-15


def test_thresholds_with_ties_and_adjacent_numbers() -> None:
    first = 0.5
    second = float(np.nextafter(first, 1.0))
    third = float(np.nextafter(second, 1.0))
    for low, high in ((first, second), (second, third)):  # their middles round down and up
        thresholds = spread_thresholds(np.array([[low], [low], [low], [high]]), 10)
        assert thresholds.tolist() == [0.0, low, 1.0]  # low separates the two: equal confidence stays
    assert spread_thresholds(np.full((5, 2), 0.7), 10).tolist() == [0.0, 1.0]


def test_efficient_points_against_a_loop() -> None:
    rng = np.random.default_rng(0)
    cost_P = rng.integers(8, size=60) / 8
    accuracy_P = rng.integers(8, size=60) / 8
    pairs = list(zip(cost_P.tolist(), accuracy_P.tolist(), strict=True))
    expected = []
    for p, (cost, accuracy) in enumerate(pairs):
        dominated = any(
            c <= cost and a >= accuracy and ((c, a) != (cost, accuracy) or q < p)
            for q, (c, a) in enumerate(pairs)
            if q != p
        )
        expected.append(not dominated)
    assert efficient(cost_P, accuracy_P).tolist() == expected
    assert any(expected)


def test_efficient_points_of_the_curve_rise(make_table: TableFactory) -> None:
    points = [point for point in curve(compute_confidences(make_table()), points=100) if point.efficient]
    assert len(points) > 3
    assert all(a.mean_cost < b.mean_cost and a.accuracy < b.accuracy for a, b in pairwise(points))


def test_a_plain_network_has_one_point(make_table: TableFactory) -> None:
    (point,) = curve(compute_confidences(make_table(exits=1)))
    assert point.exit_share == (1.0,)
    assert point.efficient


def test_points_are_json_and_empty_groups_none(make_table: TableFactory) -> None:
    content = [
        point.to_json() for point in curve(compute_confidences(make_table(class_counts_C=np.full(6, 50))), points=5)
    ]
    assert json.loads(json.dumps(content, allow_nan=False)) == content
    assert content[0]["accuracy_by_group"]["many"] is None


def test_refusals(make_table: TableFactory) -> None:
    with pytest.raises(RequestError, match="a curve needs 2 or more points, not 1"):
        curve(compute_confidences(make_table()), points=1)
    with pytest.raises(RequestError, match="no examples"):
        curve(compute_confidences(make_table(examples=0)))


def assert_equals_replays(derived: ExitConfidences, result: Sweep) -> None:
    for p, thresholds_T in enumerate(result.thresholds_PT):
        policy = Policy("p", tuple(thresholds_T.tolist()), derived.confidence_scale)
        metrics = measure(derived.table, replay(derived, policy))
        assert result.accuracy_P[p] == metrics.accuracy
        assert result.mean_cost_P[p] == pytest.approx(metrics.mean_cost, rel=1e-14)
        assert tuple(result.exit_share_PE[p].tolist()) == metrics.exit_share
        for name, accuracy in zip(GROUP_NAMES, result.accuracy_PG[p].tolist(), strict=True):
            expected = metrics.accuracy_by_group[name]
            assert np.isnan(accuracy) if expected is None else accuracy == expected


def thresholds_with_ties(derived: ExitConfidences, rng: np.random.Generator, points: int) -> np.ndarray:
    """Random thresholds, some of them exactly an observed confidence, some 0 or 1."""
    thresholds_PT = rng.uniform(0.1, 1.0, size=(points, 3))
    observed = rng.choice(derived.confidence_NE[:, :-1].ravel(), size=(points, 3))
    thresholds_PT = np.where(rng.random((points, 3)) < 0.4, observed, thresholds_PT)
    thresholds_PT[:3] = [[0.0, 0.0, 0.0], [1.0, 1.0, 1.0], [1.0, 0.0, 0.5]]
    return thresholds_PT


def test_per_exit_thresholds(make_table: TableFactory) -> None:
    derived = compute_confidences(make_table(), (1.0, 2.0, 1.0, 3.0))
    thresholds_PT = thresholds_with_ties(derived, np.random.default_rng(0), 60)
    result = sweep(derived, thresholds_PT)
    np.testing.assert_array_equal(result.thresholds_PT, thresholds_PT)
    assert_equals_replays(derived, result)


def test_uniform_thresholds_in_any_order(make_table: TableFactory) -> None:
    derived = compute_confidences(make_table(), 2.0)
    threshold_P = thresholds_with_ties(derived, np.random.default_rng(1), 60).ravel()
    result = sweep_uniform(derived, threshold_P)
    assert_equals_replays(derived, result)
    np.testing.assert_array_equal(result.thresholds_PT[:, 0], threshold_P)
    general = sweep(derived, np.repeat(threshold_P[:, None], 3, axis=1))
    np.testing.assert_array_equal(general.accuracy_P, result.accuracy_P)
    np.testing.assert_array_equal(general.exit_share_PE, result.exit_share_PE)


def test_chunks_change_nothing(make_table: TableFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    derived = compute_confidences(make_table(examples=50))
    thresholds_PT = np.random.default_rng(2).uniform(size=(17, 3))
    whole = sweep(derived, thresholds_PT)
    for cells in (1, 50 * 5):
        monkeypatch.setattr(trade_off, "CHUNK_CELLS", cells)
        np.testing.assert_array_equal(whole.accuracy_PG, sweep(derived, thresholds_PT).accuracy_PG)
        np.testing.assert_array_equal(whole.mean_cost_P, sweep(derived, thresholds_PT).mean_cost_P)


def test_a_group_without_examples_is_nan(make_table: TableFactory) -> None:
    derived = compute_confidences(make_table(class_counts_C=np.array([500, 500, 500, 50, 50, 50])))
    assert np.isnan(sweep(derived, np.full((2, 3), 0.5)).accuracy_PG[:, 2]).all()
    assert np.isnan(sweep_uniform(derived, np.array([0.5])).accuracy_PG[:, 2]).all()


def test_single_exit(make_table: TableFactory) -> None:
    derived = compute_confidences(make_table(exits=1))
    assert_equals_replays(derived, sweep(derived, np.zeros((2, 0))))
    assert_equals_replays(derived, sweep_uniform(derived, np.array([0.5, 1.0])))


def test_wrong_shapes_and_empty_tables_are_refused(make_table: TableFactory) -> None:
    with pytest.raises(RequestError, match=r"give \(points, 3\)"):
        sweep(compute_confidences(make_table()), np.zeros((5, 4)))
    with pytest.raises(RequestError, match="no examples"):
        sweep(compute_confidences(make_table(examples=0)), np.zeros((5, 3)))
    with pytest.raises(RequestError, match="no examples"):
        sweep_uniform(compute_confidences(make_table(examples=0)), np.zeros(5))
