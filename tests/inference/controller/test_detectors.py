"""Mean cost and 95th percentile in the common form."""

import math

import numpy as np
import pytest

from elfnet.inference.controller.detectors import (
    MIX_LENGTHS,
    OVERLOAD_ERRORS,
    OVERLOAD_WINDOWS,
    MeanCost,
    MixChange,
    Overload,
    TailLatency,
)
from elfnet.inference.controller.ladder import Ladder

LADDER = Ladder(names=("a", "b", "c"), mean_cost=(0.2, 0.4, 0.8), worst_cost=(1.0, 1.0, 1.1))


def test_mean_cost() -> None:
    gauge, cost_N = MeanCost(0.1, 1.1), np.array([0.1, 0.6, 1.1])
    assert gauge.overload(cost_N, 9.0).mean() == pytest.approx(0.6)
    assert gauge.allowed(0.7) == 0.7
    assert gauge.mix(cost_N, 0.5) == pytest.approx([0.0, 0.5, 1.0])
    assert gauge.mix(np.array([0.0, 2.0]), 0.5).tolist() == [0.0, 1.0]
    assert gauge.value(cost_N) == pytest.approx(0.6)
    # 0.6 * 0.8 / 0.4 = 1.2 would be more than the third rung can cost.
    assert gauge.predicted(LADDER, 0.6, 1) == pytest.approx((0.3, 0.6, 1.1))


@pytest.mark.parametrize("seed", range(10))
def test_more_than_a_twentieth_above_the_limit_is_a_percentile_above_the_limit(seed: int) -> None:
    duration_N = np.random.default_rng(seed).lognormal(size=1000)
    gauge = TailLatency()
    for limit in (1.0, 4.0, 5.0, 5.2, 5.5, 6.0):
        too_many = gauge.overload(duration_N, limit).mean() > gauge.allowed(limit)
        # The 951st of 1,000 sorted durations is above the limit exactly if 50 or more are.
        assert too_many == (np.sort(duration_N)[949] > limit)
    assert gauge.value(duration_N) == pytest.approx(np.quantile(duration_N, 0.95))


def test_latency_mix_and_prediction() -> None:
    gauge = TailLatency()
    assert gauge.mix(np.array([0.0, 5.0, 20.0, 400.0]), 10.0).tolist() == [0.0, 0.25, 1.0, 1.0]
    assert gauge.predicted(LADDER, 6.0, 1) == pytest.approx((3.0, 6.0, 12.0))


@pytest.mark.parametrize("false_alarm", [0.5, 0.01])
def test_false_alarms_of_whole_streams_stay_within_the_promise(false_alarm: float) -> None:
    streams = 120
    alarms = 0
    for seed in range(streams):
        rng = np.random.default_rng(seed)
        detector = MixChange(2, false_alarm)
        # Coins, the most variable values there are; windows of one value each, the most tests there are.
        coins = (rng.random((120, 4)) < 0.5).astype(np.float64)
        rungs = rng.integers(2, size=120)
        alarms += any(detector.add(int(rung), coin) for rung, coin in zip(rungs, coins, strict=True))
    standard_error = math.sqrt(false_alarm * (1 - false_alarm) / streams)
    assert alarms / streams <= false_alarm + 3 * standard_error


@pytest.mark.parametrize("seed", range(3))
def test_equals_a_loop(seed: int) -> None:
    rng = np.random.default_rng(seed)
    detector, rungs, false_alarm = MixChange(3, 0.1), 3, 0.1
    seen: list[list[np.ndarray[tuple[int], np.dtype[np.float64]]]] = [[] for _ in range(rungs)]
    changes = 0
    for window in range(300):
        rung, level = int(rng.integers(rungs)), (0.3, 0.6, 0.4)[window // 100]
        values = (rng.random(20) < level).astype(np.float64)
        seen[rung].append(values)
        windows, found = seen[rung], False
        for length in MIX_LENGTHS:
            if length < len(windows):
                recent, earlier = np.concatenate(windows[-length:]), np.concatenate(windows[:-length])
                share = false_alarm / (rungs * len(MIX_LENGTHS) * len(windows) * (len(windows) - 1))
                radius = math.sqrt(math.log(2 / share) * (1 / len(recent) + 1 / len(earlier)) / 2)
                found |= abs(recent.mean() - earlier.mean()) >= radius
        assert detector.add(rung, values) == found
        if found:
            changes += 1
            seen = [[] for _ in range(rungs)]
            seen[rung].append(values)
    assert changes >= 2


def test_rungs_are_not_compared_with_each_other() -> None:
    detector = MixChange(2, 0.01)
    for _ in range(50):
        assert not detector.add(0, np.zeros(256))
        assert not detector.add(1, np.ones(256))
    assert detector.add(0, np.ones(256))
    # All records were begun anew: the other rung, too, may now give anything.
    assert not detector.add(1, np.zeros(256))


def test_small_changes_are_found_later() -> None:
    def windows_needed(change: float) -> int:
        rng = np.random.default_rng(0)
        detector = MixChange(1, 0.01)
        for _ in range(100):
            assert not detector.add(0, (rng.random(256) < 0.4).astype(np.float64))
        return next(n for n in range(1, 100) if detector.add(0, (rng.random(256) < 0.4 + change).astype(np.float64)))

    assert windows_needed(0.3) == 1
    assert 1 < windows_needed(0.1) < 12
    assert 4 < windows_needed(0.06) < 40


def test_nothing_seen_is_no_overload() -> None:
    assert not Overload().exceeds(-1.0)


def test_a_constant_needs_one_window() -> None:
    overload = Overload()
    overload.add(np.full(10, 0.6))
    assert overload.exceeds(0.59)
    assert not overload.exceeds(0.6 + 1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_equals_a_loop_over_lengths(seed: int) -> None:
    rng = np.random.default_rng(seed)
    overload, windows = Overload(), []
    for _ in range(OVERLOAD_WINDOWS + 10):
        windows.append(rng.uniform(size=int(rng.integers(5, 30))))
        overload.add(windows[-1])
        kept = windows[-OVERLOAD_WINDOWS:]
        highest = -np.inf
        for length in {1, 2, 4, 8, 16, 32, 64, len(kept)}:
            if length <= len(kept):
                values = np.concatenate(kept[-length:])
                highest = max(highest, values.mean() - OVERLOAD_ERRORS * values.std() / np.sqrt(len(values)))
        assert overload.exceeds(highest - 1e-9)
        assert not overload.exceeds(highest + 1e-9)


def test_a_small_excess_shows_in_many_windows_only() -> None:
    rng = np.random.default_rng(0)
    overload = Overload()
    found = []
    for _ in range(OVERLOAD_WINDOWS):
        overload.add((rng.random(256) < 0.53).astype(np.float64))
        found.append(overload.exceeds(0.5))
    assert not any(found[:2])
    assert all(found[-10:])


def test_cleared() -> None:
    overload = Overload()
    overload.add(np.ones(10))
    overload.clear()
    assert not overload.exceeds(0.5)
