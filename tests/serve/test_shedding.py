"""Under pressure the point falls, and afterwards it comes back."""

import pytest

from elfnet.deploy.model import Model
from elfnet.serve.shedding import FROM, FULLY, HALF_LIFE, Shedding


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_cost_falls_with_pressure_and_comes_back(model: Model) -> None:
    clock = Clock()
    model.set_operating_point("full")
    shedding = Shedding(model.engine, clock=clock)
    costs = {point.name: point.expected.mean_cost for point in model.engine.family.points}
    cheapest = min(costs.values())
    assert shedding.feel(FROM) == "full"
    seen = []
    for step in range(9):
        pressure = FROM + step / 8 * (FULLY - FROM)
        allowed = costs["full"] - step / 8 * (costs["full"] - cheapest)
        point = shedding.feel(pressure)
        assert costs[point] <= allowed + 1e-9
        seen.append(costs[point])
    assert seen == sorted(seen, reverse=True)
    assert seen[-1] == cheapest
    assert len(set(seen)) > 3
    # It does not jump back when the queue is empty for a moment, but it does come back.
    assert costs[shedding.feel(0.0)] == cheapest
    back = []
    for _ in range(12):
        clock.now += HALF_LIFE / 4
        back.append(costs[shedding.feel(0.0)])
    assert back == sorted(back)
    assert shedding.point == "full"
    assert model.operating_point == "full"


@pytest.mark.parametrize("chosen", ["s=0.2", "s=0.5"])
def test_it_never_costs_more_than_the_chosen_point(model: Model, chosen: str) -> None:
    model.set_operating_point(chosen)
    shedding = Shedding(model.engine, clock=Clock())
    limit = model.operating_points[chosen].expected.mean_cost
    for step in range(11):
        assert model.operating_points[shedding.feel(step / 10)].expected.mean_cost <= limit
