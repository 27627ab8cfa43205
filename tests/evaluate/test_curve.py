"""The accuracy-FLOPs curve."""

import json
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

from elfnet.errors import RequestError
from elfnet.evaluate.confidence import compute_confidences
from elfnet.evaluate.curve import curve, efficient, spread_thresholds
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.metrics import measure
from elfnet.evaluate.replay import replay
from elfnet.exits.policy import uniform_policy

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
