"""Budgets in milliseconds: reading them, the time of a point, and points that are fitted or chosen within a time."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from elfnet.calibrate.family_request import FamilyRequest
from elfnet.calibrate.fit_points import fit_family
from elfnet.calibrate.measured_cost import MeasuredCost, TimeBudget, parse_budget
from elfnet.calibrate.point_family import Family
from elfnet.errors import RequestError, WorkError
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.policy_replay import replay
from elfnet.exits.policy import Policy

TIMES = MeasuredCost(
    stages=(1e-3, 2e-3, 3e-3, 4e-3), heads=(0.5e-3, 0.25e-3, 0.1e-3, 1e-9), plain=10e-3, backend="x", batch=1, threads=2
)


def request(*budgets: float | TimeBudget) -> FamilyRequest:
    return FamilyRequest(search=(0.5, 0.8), budgets=budgets, geometric_budgets=())


def mean_milliseconds(table: ExitTable, policy: Policy) -> float:
    """The mean time of the examples, added up stage by stage and head by head."""
    total = 0.0
    for taken in replay(table, policy).exit_N.tolist():
        for k in range(taken + 1):
            total += TIMES.stages[k] + (TIMES.heads[k] if policy.runs_head(k) else 0.0)
    return 1e3 * total / table.examples


@pytest.mark.parametrize(("text", "budget"), [("0.6", 0.6), ("5ms", TimeBudget(5.0)), (" 0.25 ms ", TimeBudget(0.25))])
def test_the_unit_decides(text: str, budget: float | TimeBudget) -> None:
    assert parse_budget(text) == budget


@pytest.mark.parametrize("text", ["half", "5s", "nan", "0ms", "-1ms", "infms", "ms"])
def test_other_budgets_are_refused(text: str) -> None:
    with pytest.raises(RequestError, match=r"such as (0\.6|5ms)"):
        parse_budget(text)


def test_time_of_a_policy(make_table: Callable[..., ExitTable]) -> None:
    table = make_table()
    for thresholds in ((0.6, 0.7, 0.8), (0.6, 1.0, 0.8), (1.0, 1.0, 1.0)):
        policy = Policy("p", thresholds, (2.0,) * 4)
        share_E = np.bincount(replay(table, policy).exit_N, minlength=4) / table.examples
        assert TIMES.milliseconds(policy, share_E.tolist()) == pytest.approx(mean_milliseconds(table, policy))


def test_points_are_fitted_within_a_time_beside_those_within_a_cost(make_table: Callable[..., ExitTable]) -> None:
    table = make_table()
    family = fit_family(table, request(0.5, TimeBudget(4.0), TimeBudget(8.0)), times=TIMES)
    names = [point.name for point in family.points if point.name.startswith("budget")]
    assert names == ["budget=0.5", "budget=4ms", "budget=8ms"]
    fast, slow = family.point("budget=4ms"), family.point("budget=8ms")
    assert 3.0 < mean_milliseconds(table, fast.policy) <= 4.0 + 1e-9
    assert 6.0 < mean_milliseconds(table, slow.policy) <= 8.0 + 1e-9
    assert slow.expected.accuracy > fast.expected.accuracy
    # The cost of a point stays the cost of the family.
    assert slow.expected.mean_cost <= slow.expected.worst_cost <= table.cost_E[-1]


def test_times_alone_keep_the_usual_budgets(make_table: Callable[..., ExitTable]) -> None:
    names = fit_family(make_table(), request(TimeBudget(4.0)), times=TIMES).names()
    assert {"budget=0.5", "budget=4ms"} <= set(names)


@pytest.fixture(scope="module")
def family(make_table: Callable[..., ExitTable]) -> Family:
    return fit_family(make_table(), request(0.3, 0.5, 0.8))


def test_the_most_accurate_point_within_a_time(family: Family) -> None:
    chosen = family.for_budget(TimeBudget(5.0), times=TIMES)
    taken = {one.name: TIMES.milliseconds(one.policy, one.expected.exit_share) for one in family.points}
    within = [one for one in family.points if taken[one.name] <= 5.0]
    assert chosen in within
    assert chosen.expected.balanced_accuracy == max(one.expected.balanced_accuracy for one in within)
    assert family.for_budget(TimeBudget(1e3), times=TIMES).expected.balanced_accuracy == max(
        one.expected.balanced_accuracy for one in family.points
    )


def test_a_time_that_no_point_keeps_is_refused(family: Family, make_table: Callable[..., ExitTable]) -> None:
    with pytest.raises(RequestError, match=r"no operating point takes at most 1ms .* the fastest is '.*' at [\d.]+ms"):
        family.for_budget(TimeBudget(1.0), times=TIMES)
    with pytest.raises(RequestError, match="needs times that were measured on this machine"):
        family.for_budget(TimeBudget(1.0))
    with pytest.raises(RequestError, match=r"below the time to the first exit, 1\.5ms"):
        fit_family(make_table(), request(TimeBudget(1.0)), times=TIMES)
    with pytest.raises(RequestError, match="budget 4ms needs measured times"):
        fit_family(make_table(), request(TimeBudget(4.0)))


def test_times_are_stored_with_a_hash(tmp_path: Path) -> None:
    file = tmp_path / "times.json"
    TIMES.save(file)
    assert MeasuredCost.open(file) == TIMES
    file.write_text(file.read_text().replace("0.002", "0.003"))
    with pytest.raises(WorkError, match=r"times\.json"):
        MeasuredCost.open(file)
    with pytest.raises(WorkError, match="cannot read"):
        MeasuredCost.open(tmp_path / "nowhere.json")
