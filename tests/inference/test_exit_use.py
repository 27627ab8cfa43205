"""Exits that do not pay for their heads are found, with the reason, and left out."""

from dataclasses import replace

import numpy as np
import pytest

from elfnet.calibrate.measured_cost import MeasuredCost
from elfnet.calibrate.operating_point import OperatingPoint
from elfnet.calibrate.policy_file import Expected
from elfnet.exits.policy import NEVER, Policy
from elfnet.inference.exit_use import exit_use, without_unprofitable_exits

COST = MeasuredCost(
    stages=(1.0, 4.0, 3.0, 2.0), heads=(0.5, 2.0, 0.5, 1e-9), plain=10.0, backend="x", batch=1, threads=1
)


def point(share: tuple[float, ...], thresholds: tuple[float, ...] = (0.5, 0.5, 0.5)) -> OperatingPoint:
    return OperatingPoint(
        name="p",
        policy=Policy("p", thresholds, (1.0,) * 4),
        expected=Expected(
            accuracy=0.5,
            accuracy_by_group={"many": 0.5, "medium": None, "few": None},
            balanced_accuracy=0.5,
            mean_cost=0.5,
            worst_cost=1.0,
            exit_share=share,
        ),
        rule="fixed",
    )


def test_what_is_saved_and_what_it_takes() -> None:
    first, second, third = exit_use(point((0.5, 0.1, 0.2, 0.2)), COST)
    # Half leave before stage 2 and its head; everybody had the first head.
    assert (first.reach, first.leave, first.head_time) == (1.0, 0.5, 0.5)
    assert first.time_saved == pytest.approx(0.5 * (4.0 + 2.0))
    assert second.head_time == pytest.approx(0.5 * 2.0)
    assert second.time_saved == pytest.approx(0.1 * (3.0 + 0.5))
    assert third.time_saved == pytest.approx(0.2 * 2.0)
    assert third.head_time == pytest.approx(0.4 * 0.5)
    assert [use.pays for use in (first, second, third)] == [True, False, True]
    assert "exit 2 does not pay: 10 %" in second.why


def test_an_exit_that_does_not_pay_is_left_out() -> None:
    policy, reasons = without_unprofitable_exits(point((0.5, 0.1, 0.2, 0.2)), COST)
    assert policy.thresholds == (0.5, NEVER, 0.5)
    assert [reason.pays for reason in reasons] == [True, False, True]
    # The reason is the one it was left out for, not that it is now unused.
    assert "does not pay" in reasons[1].why


def test_leaving_one_out_can_make_another_pay() -> None:
    """Nobody to speak of leaves at exits 1 and 2; once 2 is gone, going on from 1 means going to 3."""
    shares = (0.12, 0.01, 0.5, 0.37)
    before = exit_use(point(shares), COST)
    assert [use.pays for use in before] == [True, False, True]
    costly = replace(COST, heads=(0.75, 2.0, 0.5, 1e-9))
    assert [use.pays for use in exit_use(point(shares), costly)] == [False, False, True]
    policy, _ = without_unprofitable_exits(point(shares), costly)
    assert policy.thresholds == (0.5, NEVER, 0.5)


def test_an_unused_exit_takes_nothing() -> None:
    first, _, _ = exit_use(point((0.0, 0.5, 0.0, 0.5), (NEVER, 0.5, NEVER)), COST)
    assert not first.used
    assert first.head_time == 0.0
    assert "not used" in first.why


def test_promises_and_combinations_stay_as_they_are() -> None:
    losing = point((0.0, 0.0, 0.0, 1.0))
    assert without_unprofitable_exits(losing, COST)[0].thresholds == (NEVER,) * 3
    promised = replace(losing, rule="risk control", promise={"epsilon": 0.1})
    assert without_unprofitable_exits(promised, COST)[0] == promised.policy
    combined = replace(losing, policy=replace(losing.policy, combine=True))
    assert without_unprofitable_exits(combined, COST)[0] == combined.policy


def test_nobody_leaves_earlier_than_before() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        share = rng.dirichlet(np.ones(4))
        heads = (*rng.uniform(0.1, 3.0, 3).tolist(), 1e-9)
        policy, _ = without_unprofitable_exits(point(tuple(share.tolist())), replace(COST, heads=heads))
        assert set(policy.thresholds) <= {0.5, NEVER}
