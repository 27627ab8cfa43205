"""An excess is told from noise."""

import numpy as np
import pytest

from elfnet.inference.controller.detectors import OVERLOAD_ERRORS, OVERLOAD_WINDOWS, Overload


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
