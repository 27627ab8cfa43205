"""Adaptive inference that really stops: run a stage, decide, keep only the examples that stay.

The decision is the policy's, the same that `replay` makes from an exit table, so both give the same answers.
"""

# Shapes: N examples of a call, B of them still here, E exits, K channels, H height, W width

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elfnet.calibrate.family import Family
from elfnet.deploy.backend import Backend
from elfnet.errors import RequestError
from elfnet.exits.policy import Policy

ABSTAINED = -1


@dataclass(frozen=True, eq=False)
class Answers:
    """What came out, in the order of the input.

    Attributes:
        prediction_N: the class, or `ABSTAINED` where the confidence at the exit taken was below `abstain_below`.
        confidence_N: at the exit taken.
        exit_N: the exit taken, from 0.
        cost_N: multiply-adds relative to the plain backbone, every head on the way included.
    """

    prediction_N: NDArray[np.int64]
    confidence_N: NDArray[np.float64]
    exit_N: NDArray[np.int64]
    cost_N: NDArray[np.float64]


class Engine:
    """One network, many operating points, any batch size, many callers.

    Args:
        backend: what computes stages and heads.
        family: the operating points; the first one is in force at the start.
        cost: cumulative cost of each exit, relative to the plain backbone.
        deepest_exit: everybody who is still here leaves at this exit (from 0): a cap on the worst case.
        abstain_below: answers with a final confidence below this are withheld.
    """

    def __init__(
        self,
        backend: Backend,
        family: Family,
        cost: Sequence[float],
        *,
        deepest_exit: int | None = None,
        abstain_below: float = 0.0,
    ) -> None:
        if not backend.exits == len(cost) == len(family.confidence_scale):
            raise RequestError(
                f"the network has {backend.exits} exits, the family {len(family.confidence_scale)} and the costs "
                f"{len(cost)}; take all three from one run"
            )
        if deepest_exit is not None and not 0 <= deepest_exit < backend.exits:
            raise RequestError(f"deepest_exit={deepest_exit} must lie in 0..{backend.exits - 1}")
        if not 0.0 <= abstain_below <= 1.0:
            raise RequestError(f"abstain_below={abstain_below} must be a probability; 0 never abstains")
        self._backend, self._family = backend, family
        self._cost_E = np.asarray(cost, dtype=np.float64)
        self._last = backend.exits - 1 if deepest_exit is None else deepest_exit
        self._abstain_below = abstain_below
        self._policy = family.points[0].policy

    @property
    def operating_point(self) -> str:
        """The name of the point in force for calls that do not ask for one."""
        return self._policy.name

    def set_operating_point(self, point: str | float) -> None:
        """By name, or by budget: the most accurate point within it. Calls under way end as they began."""
        # One assignment of an immutable object: a call sees the old point or the new one, never a mixture.
        self._policy = self._find(point)

    def _find(self, point: str | float) -> Policy:
        found = self._family.point(point) if isinstance(point, str) else self._family.for_budget(point)
        return found.policy

    def __call__(self, images_NKHW: NDArray[np.float32], *, operating_point: str | float | None = None) -> Answers:
        """Classify normalised images; `operating_point` holds for this call only."""
        policy = self._policy if operating_point is None else self._find(operating_point)
        examples = len(images_NKHW)
        prediction_N = np.empty(examples, dtype=np.int64)
        confidence_N = np.empty(examples, dtype=np.float64)
        exit_N = np.empty(examples, dtype=np.int64)
        here = np.arange(examples)
        features = self._backend.start(images_NKHW) if examples else None
        for k in range(self._last + 1):
            if len(here) == 0:
                break
            features, logits_BC = self._backend.run(k, features)
            decision = policy.decide(k, logits_BC)
            leaves = decision.leaves_N if k < self._last else np.ones_like(decision.leaves_N)
            gone = here[leaves]
            prediction_N[gone] = decision.prediction_N[leaves]
            confidence_N[gone] = decision.confidence_N[leaves]
            exit_N[gone] = k
            stay = np.flatnonzero(~leaves)
            if 0 < len(stay) < len(here):
                features = self._backend.keep(features, stay)
            here = here[stay]
        prediction_N[confidence_N < self._abstain_below] = ABSTAINED
        return Answers(prediction_N, confidence_N, exit_N, self._cost_E[exit_N])
