"""Hold a mean cost as the inputs get harder or easier."""

# Shapes: N examples of a call

import numpy as np
from numpy.typing import ArrayLike

from elfnet.calibrate.family import Family
from elfnet.deploy.controller.gauge import MeanCost
from elfnet.deploy.controller.held_target import ControlState, HeldTarget
from elfnet.deploy.controller.ladder import Ladder, highest_within
from elfnet.deploy.controller.settings import ControlSettings
from elfnet.errors import RequestError


class CostController:
    """The dearest efficient operating point whose mean cost on the present inputs is within the target.

    Reads the cost of each answer and nothing else: no label, no clock. The bound on its moves is in `stepper`.

    Args:
        family: the operating points with their expected costs.
        target: mean cost in the family's unit, from that of the cheapest point to the worst case of the dearest.
        settings: windows and margins.

    Example:
        controller = CostController(family, 0.6)
        answers = engine(images)
        name = controller.observe(answers.cost_N)
        if name is not None:
            engine.set_operating_point(name)
    """

    def __init__(self, family: Family, target: float, settings: ControlSettings | None = None) -> None:
        self._ladder = Ladder.of(family)
        self._ladder.require_cost(target)
        self._largest = family.cost[-1]  # every stage and every head
        start = highest_within(self._ladder.mean_cost, target)
        gauge = MeanCost(family.cost[0] - family.head_cost[0], self._largest)
        self._held = HeldTarget(self._ladder, gauge, target, start, settings or ControlSettings())

    @property
    def operating_point(self) -> str:
        """The name of the point in force."""
        return self._held.operating_point

    @property
    def state(self) -> ControlState:
        return self._held.state

    def observe(self, cost_N: ArrayLike, *, at: str | None = None) -> str | None:
        """Take the costs of answered examples; the name of the new operating point, if it is time to move.

        Args:
            cost_N: as the engine returns them, in the family's unit.
            at: the operating point they were answered at; those of another point than the present are left out.
        """
        highest = float(np.max(cost_N, initial=0.0))
        if highest > self._largest * (1.0 + 1e-6):
            raise RequestError(
                f"observed cost {highest:g} is above {self._largest:.4g}, that of all stages and heads; "
                f"give costs of the network that the family is of, in the family's unit"
            )
        return self._held.observe(cost_N, at)

    def set_target(self, target: float) -> str | None:
        """Hold another mean cost from now on; the name of the new operating point, if it moves at once."""
        self._ladder.require_cost(target)
        return self._held.set_target(target)
