"""Adaptive inference that really stops: run a stage, decide, keep only the examples that stay.

The decision is the policy's, the same that `replay` makes from an exit table, so both give the same answers. Where an
operating point lets nobody leave, the head is not run: stages on both sides of it are one.
"""

# Shapes: N examples of a call, B of them still here, E exits, C classes, K channels, H height, W width
# Shapes: B examples still here, K channels, H height, W width, C classes
# Shapes: B examples, K channels, H height, W width

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from elfnet.calibrate.family import Family
from elfnet.calibrate.measured_cost import MeasuredCost
from elfnet.errors import RequestError
from elfnet.exits.policy import Policy, cost_to_exit
from elfnet.inference.exit_use import ExitUse, without_unprofitable_exits


class Backend(Protocol):
    """Stages and heads of one network. Features are the backend's own arrays; the engine never looks inside.

    A backend holds no state of a call, so that many threads may use one.
    """

    @property
    def exits(self) -> int: ...

    def start(self, images_BKHW: NDArray[np.float32]) -> Any:
        """Normalised images, as the first stage wants them."""
        ...

    def run(self, k: int, features: Any) -> tuple[Any, NDArray[np.float32]]:
        """Stage k and the head behind it: new features, and logits (B, C)."""
        ...

    def run_without_head(self, k: int, features: Any) -> Any:
        """Stage k alone, where nobody can leave: new features. Never asked of the last stage."""
        ...

    def keep(self, features: Any, stay: NDArray[np.int64]) -> Any:
        """The features of the examples at these positions."""
        ...


ABSTAINED = -1


@dataclass(frozen=True, eq=False)
class Answers:
    """What came out, in the order of the input.

    Attributes:
        prediction_N: the class, or `ABSTAINED` where the confidence at the exit taken was below `abstain_below`.
        confidence_N: at the exit taken.
        exit_N: the exit taken, from 0.
        cost_N: in the family's unit; every stage and head that was run counts, and no other.
        probability_NC: of all classes, at the exit taken.
    """

    prediction_N: NDArray[np.int64]
    confidence_N: NDArray[np.float64]
    exit_N: NDArray[np.int64]
    cost_N: NDArray[np.float64]
    probability_NC: NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class _Plan:
    """One operating point, made ready to run; immutable, so that one assignment changes it for everybody."""

    policy: Policy
    runs_head: tuple[bool, ...]
    cost_E: NDArray[np.float64]


class Engine:
    """One network, many operating points, any batch size, many callers.

    Attributes:
        backend, family: as given.

    Args:
        backend: what computes stages and heads.
        family: the operating points; the first one is in force at the start.
        deepest_exit: everybody who is still here leaves at this exit (from 0): a cap on the worst case.
        abstain_below: answers with a final confidence below this are withheld.
    """

    def __init__(
        self,
        backend: Backend,
        family: Family,
        *,
        deepest_exit: int | None = None,
        abstain_below: float = 0.0,
    ) -> None:
        if backend.exits != family.exits:
            raise RequestError(
                f"the network has {backend.exits} exits, the operating points are for {family.exits}; "
                f"take both from one run"
            )
        if deepest_exit is not None and not 0 <= deepest_exit < backend.exits:
            raise RequestError(f"deepest_exit={deepest_exit} must lie in 0..{backend.exits - 1}")
        if not 0.0 <= abstain_below <= 1.0:
            raise RequestError(f"abstain_below={abstain_below} must be a probability; 0 never abstains")
        self.backend, self.family = backend, family
        self._last = backend.exits - 1 if deepest_exit is None else deepest_exit
        self._abstain_below = abstain_below
        self._plans = {point.name: self._plan(point.policy) for point in family.points}
        self._in_force = self._plans[family.points[0].name]

    def _plan(self, policy: Policy) -> _Plan:
        # Whoever is still here at the deepest exit leaves there, so its head is run whatever the policy says.
        runs_head = tuple(policy.runs_head(k) or k == self._last for k in range(self.family.exits))
        cost_E = cost_to_exit(self.family.cost, self.family.head_cost, policy)
        if not policy.runs_head(self._last):
            cost_E = cost_E.copy()
            cost_E[self._last] += self.family.head_cost[self._last]
        return _Plan(policy, runs_head, cost_E)

    @property
    def operating_point(self) -> str:
        """The name of the point in force for calls that do not ask for one."""
        return self._in_force.policy.name

    def set_operating_point(self, point: str | float) -> str:
        """By name, or by budget: the most accurate point within it, whose name is returned.

        Nothing is loaded or compiled, and calls under way end as they began.
        """
        # One assignment of an immutable object: a call sees the old point or the new one, never a mixture.
        self._in_force = self._find(point)
        return self.operating_point

    def leave_out_unprofitable_exits(self, cost: MeasuredCost) -> dict[str, tuple[ExitUse, ...]]:
        """Fuse stages across exits that do not pay for their heads on this machine; the reasons, point by point.

        Args:
            cost: from `measure_stages`, on this machine and with this engine's backend.
        """
        plans, reasons = {}, {}
        for point in self.family.points:
            policy, reasons[point.name] = without_unprofitable_exits(point, cost)
            plans[point.name] = self._plan(policy)
        self._plans = plans
        self._in_force = plans[self.operating_point]
        return reasons

    def exits_in_use(self, point: str | float | None = None) -> tuple[bool, ...]:
        """For each exit, whether its head is run at an operating point (by default the one in force)."""
        return (self._in_force if point is None else self._find(point)).runs_head

    def _find(self, point: str | float) -> _Plan:
        if isinstance(point, str):
            # An unknown name is refused by the family, which lists the choices.
            return self._plans.get(point) or self._plans[self.family.point(point).name]
        return self._plans[self.family.for_budget(point).name]

    def __call__(self, images_NKHW: NDArray[np.float32], *, operating_point: str | float | None = None) -> Answers:
        """Classify normalised images; `operating_point` holds for this call only."""
        plan = self._in_force if operating_point is None else self._find(operating_point)
        examples = len(images_NKHW)
        if examples == 0:
            return _no_answers()
        here = np.arange(examples)
        exit_N = np.empty(examples, dtype=np.int64)
        features = self.backend.start(images_NKHW)
        evidence_BC = None
        for k in range(self._last + 1):
            if not plan.runs_head[k]:
                features = self.backend.run_without_head(k, features)
                continue
            features, logits_BC = self.backend.run(k, features)
            decision = plan.policy.decide(k, logits_BC, evidence_BC)
            # Everybody who is here gets this exit's answer; a later exit writes over that of those who stay. After a
            # stage has taken the cache, every call of NumPy costs microseconds: while nobody has left, nothing is
            # written, and with one example that is always so.
            if len(here) == examples:
                answers = decision
                exit_N.fill(k)
            else:
                answers.prediction_N[here] = decision.prediction_N
                answers.confidence_N[here] = decision.confidence_N
                answers.probability_NC[here] = decision.probability_NC
                exit_N[here] = k
            leaving = np.count_nonzero(decision.leaves_N)
            if leaving == len(here) or k == self._last:
                break
            evidence_BC = decision.evidence_NC
            if leaving > 0:
                stay = np.flatnonzero(~decision.leaves_N)
                here, features = here[stay], self.backend.keep(features, stay)
                evidence_BC = None if evidence_BC is None else evidence_BC[stay]
        prediction_N, confidence_N = answers.prediction_N, answers.confidence_N
        if self._abstain_below > 0.0:
            prediction_N[confidence_N < self._abstain_below] = ABSTAINED
        probability_NC = answers.probability_NC.astype(np.float32)
        return Answers(prediction_N, confidence_N, exit_N, plan.cost_E[exit_N], probability_NC)


def _no_answers() -> Answers:
    whole, real = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float64)
    return Answers(whole, real, whole, real, np.empty((0, 0), dtype=np.float32))


def checked_images(images_BKHW: NDArray[np.float32], image_shape: tuple[int, ...] | None = None) -> NDArray[np.float32]:
    """The same numbers in one piece of memory; `image_shape` is (K, H, W) where the network takes no other."""
    if images_BKHW.ndim != 4 or (image_shape is not None and images_BKHW.shape[1:] != image_shape):
        wanted = "channels, height, width" if image_shape is None else ", ".join(map(str, image_shape))
        raise RequestError(f"images of shape {images_BKHW.shape} do not fit; the network takes (examples, {wanted})")
    if images_BKHW.dtype != np.float32:
        raise RequestError(f"images of type {images_BKHW.dtype} do not fit; give normalised float32")
    return np.ascontiguousarray(images_BKHW)
