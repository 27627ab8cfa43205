"""Mean cost and 95th percentile in the common form."""

import numpy as np
import pytest

from elfnet.inference.controller.detectors import MeanCost, TailLatency
from elfnet.inference.controller.stepper import Ladder

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
