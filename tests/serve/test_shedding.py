"""Load shedding: the operating point gets cheaper under pressure, and recovers."""

import pytest

from elfnet.inference.model import Model
from elfnet.serve.service import HALF_LIFE, HIGH_PRESSURE, LOW_PRESSURE, LoadShedder


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_cost_falls_with_pressure_and_recovers(model: Model) -> None:
    clock = Clock()
    model.set_operating_point("full")
    shedder = LoadShedder(model.engine, clock=clock)
    costs = {point.name: point.expected.mean_cost for point in model.engine.family.points}
    cheapest = min(costs.values())
    assert shedder.update(LOW_PRESSURE) == "full"
    seen = []
    for step in range(9):
        pressure = LOW_PRESSURE + step / 8 * (HIGH_PRESSURE - LOW_PRESSURE)
        allowed = costs["full"] - step / 8 * (costs["full"] - cheapest)
        point = shedder.update(pressure)
        assert costs[point] <= allowed + 1e-9
        seen.append(costs[point])
    assert seen == sorted(seen, reverse=True)
    assert seen[-1] == cheapest
    assert len(set(seen)) > 3
    # It does not jump back when the queue is empty for a moment, but recovers slowly.
    assert costs[shedder.update(0.0)] == cheapest
    back = []
    for _ in range(12):
        clock.now += HALF_LIFE / 4
        back.append(costs[shedder.update(0.0)])
    assert back == sorted(back)
    assert shedder.point == "full"
    assert model.operating_point == "full"


@pytest.mark.parametrize("chosen", ["s=0.2", "s=0.5"])
def test_the_cost_never_exceeds_that_of_the_point_set(model: Model, chosen: str) -> None:
    model.set_operating_point(chosen)
    shedder = LoadShedder(model.engine, clock=Clock())
    limit = model.operating_points[chosen].expected.mean_cost
    for step in range(11):
        assert model.operating_points[shedder.update(step / 10)].expected.mean_cost <= limit
