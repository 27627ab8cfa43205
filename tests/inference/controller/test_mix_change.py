"""A changed mix is found; an unchanged one passes, however long the stream is."""

import math

import numpy as np
import pytest

from elfnet.inference.controller.detectors import MIX_LENGTHS, MixChange


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
