"""The budget slider against the family itself and a loop."""

from collections.abc import Callable

import numpy as np
import pytest

from elfnet.errors import RequestError
from elfnet.report.record import RunRecord, read_run
from elfnet.report.sections.slider import budget_rules, points_json
from elfnet.run.directory import RunDirectory


@pytest.fixture
def record(make_run: Callable[..., RunDirectory]) -> RunRecord:
    return read_run(make_run(search=[f"{0.3 + s / 50:.2f}" for s in range(30)]))


def test_family_track_is_what_the_family_gives_for_a_budget(record: RunRecord) -> None:
    _, family = budget_rules(record)
    seen = set()
    for budget in np.linspace(0.05, 1.3, 60):
        point = family.best_within(float(budget))
        try:
            expected = record.family.for_budget(float(budget))
        except RequestError:
            assert point is None
            continue
        assert point is not None
        assert record.family.point(point.label).policy.thresholds == expected.policy.thresholds
        assert point.accuracy == record.at(point.label).accuracy
        seen.add(point.label)
    assert len(seen) > 3


def test_one_threshold_is_the_highest_within_the_budget(record: RunRecord) -> None:
    one, _ = budget_rules(record)
    for budget in (0.2, 0.5, 0.9, 1.0, 1.1):
        within = [point for point in record.results.curve if point.mean_cost <= budget]
        best = max(within, key=lambda point: point.threshold)
        found = one.best_within(budget)
        assert found is not None
        assert (found.mean_cost, found.exit_share) == (best.mean_cost, best.exit_share)
    assert one.best_within(0.0001) is None
    # Full depth runs no early head: from the plain cost on, nothing is better than it.
    last = one.best_within(1.0)
    assert last is not None
    assert last.label == "full depth"


def test_rows_of_the_page(record: RunRecord) -> None:
    one, _ = budget_rules(record)
    rows = points_json(one)
    assert len(rows) == len(record.results.curve)
    label, limit, rank, cost, accuracy, many, medium, few, *shares = rows[5]
    point = record.results.curve[5]
    assert str(label).startswith("s = ")
    assert rank == pytest.approx(point.threshold)
    assert limit == pytest.approx(point.mean_cost, abs=1e-6)
    assert cost == f"{point.mean_cost:.3f}"
    groups = point.accuracy_by_group
    expected = [100 * (number or 0) for number in (point.accuracy, groups["many"], groups["medium"])]
    assert [accuracy, many, medium] == [f"{number:.1f}" for number in expected]
    assert few == "–"
    assert shares == [f"{100 * share:.1f}" for share in point.exit_share]


def test_a_plain_network_is_one_point(plain_run: RunDirectory) -> None:
    (rule,) = budget_rules(read_run(plain_run))
    (point,) = rule.points
    assert (point.label, point.limit, point.exit_share) == ("full depth", 1.0, (1.0,))
