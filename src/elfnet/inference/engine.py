"""The early-exit engine, and the protocol of the backends that it runs on.

The engine runs a stage and its head, lets the policy decide which examples exit, and runs the next stage only on the
others. The policy is the one that `replay` applies to an exit table, so both give the same predictions. Where an
operating point lets no example exit, the head is not run.
"""

# Shapes: N examples per call, B examples that have not exited, E exits, C classes, K channels, H height, W width

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from elfnet.calibrate.measured_cost import MeasuredCost
from elfnet.calibrate.point_family import Family
from elfnet.errors import RequestError
from elfnet.exits.policy import Policy, cost_to_exit
from elfnet.inference.exit_use import ExitUse, without_unprofitable_exits


class Backend(Protocol):
    """Computes the stages and heads of one network.

    Features are in the backend's own format; the engine only passes them on. A backend keeps no state of a call, so
    that several threads may share it.
    """

    @property
    def exits(self) -> int:
        """Number of exits."""
        ...

    def start(self, images_BKHW: NDArray[np.float32]) -> Any:
        """Convert normalised images to the input of the first stage."""
        ...

    def run(self, k: int, features: Any) -> tuple[Any, NDArray[np.float32]]:
        """Run stage k and its head, and return new features and logits (B, C)."""
        ...

    def run_without_head(self, k: int, features: Any) -> Any:
        """Run stage k without its head, and return new features. Not called for the last stage."""
        ...

    def keep(self, features: Any, stay: NDArray[np.int64]) -> Any:
        """Return the features of the examples at these positions."""
        ...


@runtime_checkable
class PixelEngine(Protocol):
    """An engine that also reads images before normalisation, each at its own operating point if asked to."""

    def of_pixels(
        self, pixels_NHWK: NDArray[Any], *, operating_point: str | float | Sequence[str] | None = None
    ) -> "Answers":
        """Classify uint8 images in the network's mode and size."""
        ...


ABSTAINED = -1
"""The prediction of an example whose confidence is too low."""


@dataclass(frozen=True, eq=False)
class Answers:
    """Output of the engine, in the order of the input.

    Attributes:
        prediction_N: Class index, or `ABSTAINED` if the confidence is below `abstain_below`.
        confidence_N: Confidence at the exit taken.
        exit_N: The exit taken, from 0.
        cost_N: Cost of the stages and heads that were run, in the family's unit.
        probability_NC: Class probabilities at the exit taken.
    """

    prediction_N: NDArray[np.int64]
    confidence_N: NDArray[np.float64]
    exit_N: NDArray[np.int64]
    cost_N: NDArray[np.float64]
    probability_NC: NDArray[np.float32]

    def take(self, rows: slice | NDArray[np.int64]) -> "Answers":
        """Return the answers of some examples."""
        return Answers(*(getattr(self, one.name)[rows] for one in fields(self)))


@dataclass(frozen=True, eq=False)
class Plan:
    """An operating point prepared for running. Immutable, so that one assignment switches it for all threads."""

    policy: Policy
    runs_head: tuple[bool, ...]
    cost_E: NDArray[np.float64]
    inputs: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    """Of a bundle that is one file, the inputs that hold this point."""


class Engine:
    """Runs a network with early exit at any of its operating points. Thread-safe.

    Attributes:
        backend: The backend.
        family: The operating points.

    Args:
        backend: Computes stages and heads.
        family: The operating points; the first one is set at the start.
        deepest_exit: Index of the exit (from 0) at which all remaining examples exit, to bound the worst-case cost;
            None for the last exit.
        abstain_below: Predictions with a lower confidence become `ABSTAINED`.

    Raises:
        RequestError: The family has another number of exits, or an argument is out of range.
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
                f"use both from the same run"
            )
        if deepest_exit is not None and not 0 <= deepest_exit < backend.exits:
            raise RequestError(f"deepest_exit={deepest_exit} must lie in 0..{backend.exits - 1}")
        if not 0.0 <= abstain_below <= 1.0:
            raise RequestError(f"abstain_below={abstain_below} must be a probability; 0 never abstains")
        self.backend, self.family = backend, family
        self._last = backend.exits - 1 if deepest_exit is None else deepest_exit
        self._abstain_below = abstain_below
        self._plans = {point.name: self._prepare(point.policy) for point in family.points}
        self._current = self._plans[family.default.name]

    def _prepare(self, policy: Policy) -> Plan:
        # All remaining examples exit at the deepest exit, so its head runs whatever the policy says.
        runs_head = tuple(policy.runs_head(k) or k == self._last for k in range(self.family.exits))
        cost_E = cost_to_exit(self.family.cost, self.family.head_cost, policy)
        if not policy.runs_head(self._last):
            cost_E = cost_E.copy()
            cost_E[self._last] += self.family.head_cost[self._last]
        return Plan(policy, runs_head, cost_E)

    @property
    def operating_point(self) -> str:
        """Name of the operating point for calls without an explicit one."""
        return self._current.policy.name

    def set_operating_point(self, point: str | float) -> str:
        """Switch the operating point, and return its name.

        Nothing is loaded or compiled. Running calls finish at the previous point.

        Args:
            point: A name, or a budget: the most accurate point whose mean cost is within it.
        """
        # Assigning an immutable object is atomic: a call uses the old point or the new one, never a mixture.
        self._current = self._find(point)
        return self.operating_point

    def leave_out_unprofitable_exits(self, cost: MeasuredCost) -> dict[str, tuple[ExitUse, ...]]:
        """Disable exits that cost more time than they save on this machine.

        Args:
            cost: Result of `measure_stages` on this machine with this engine's backend.

        Returns:
            The verdict on every early exit, by operating point.
        """
        plans, reasons = {}, {}
        for point in self.family.points:
            policy, reasons[point.name] = without_unprofitable_exits(point, cost)
            plans[point.name] = self._prepare(policy)
        self._plans = plans
        self._current = plans[self.operating_point]
        return reasons

    def exits_in_use(self, point: str | float | None = None) -> tuple[bool, ...]:
        """Return for each exit whether its head is run at an operating point (default: the present one)."""
        return self.plan(point).runs_head

    def plan(self, point: str | float | None = None) -> Plan:
        """Return a prepared operating point (default: the present one)."""
        return self._current if point is None else self._find(point)

    def _find(self, point: str | float) -> Plan:
        if isinstance(point, str):
            # The family refuses an unknown name and lists the choices.
            return self._plans.get(point) or self._plans[self.family.point(point).name]
        return self._plans[self.family.for_budget(point).name]

    def warm_up(self, images_NKHW: NDArray[np.float32]) -> None:
        """Run every set of heads once, because sessions without a head are built when they are first used."""
        by_heads = {plan.runs_head: name for name, plan in self._plans.items()}
        for name in by_heads.values():
            self(images_NKHW, operating_point=name)
        # The images may have stopped early; this runs every stage.
        all_exit_logits(self.backend, images_NKHW)

    def __call__(self, images_NKHW: NDArray[np.float32], *, operating_point: str | float | None = None) -> Answers:
        """Classify normalised images.

        Args:
            images_NKHW: Images as `Preprocess` returns them.
            operating_point: Name or budget for this call only; None for the present point.
        """
        plan = self.plan(operating_point)
        examples = len(images_NKHW)
        if examples == 0:
            return no_answers()
        remaining_B = np.arange(examples)
        exit_N = np.empty(examples, dtype=np.int64)
        features = self.backend.start(images_NKHW)
        evidence_BC = None
        for k in range(self._last + 1):
            if not plan.runs_head[k]:
                features = self.backend.run_without_head(k, features)
                continue
            features, logits_BC = self.backend.run(k, features)
            decision = plan.policy.decide(k, logits_BC, evidence_BC)
            # All remaining examples get this exit's answer; later exits overwrite it for examples that do not exit.
            # After a stage has filled the cache, every NumPy call costs microseconds. Therefore nothing is copied
            # while no example has exited, which is always the case for a single example.
            if len(remaining_B) == examples:
                answers = decision
                exit_N.fill(k)
            else:
                answers.prediction_N[remaining_B] = decision.prediction_N
                answers.confidence_N[remaining_B] = decision.confidence_N
                answers.probability_NC[remaining_B] = decision.probability_NC
                exit_N[remaining_B] = k
            exiting = np.count_nonzero(decision.leaves_N)
            if exiting == len(remaining_B) or k == self._last:
                break
            evidence_BC = decision.evidence_NC
            if exiting > 0:
                stay = np.flatnonzero(~decision.leaves_N)
                remaining_B, features = remaining_B[stay], self.backend.keep(features, stay)
                evidence_BC = None if evidence_BC is None else evidence_BC[stay]
        prediction_N, confidence_N = answers.prediction_N, answers.confidence_N
        if self._abstain_below > 0.0:
            prediction_N[confidence_N < self._abstain_below] = ABSTAINED
        probability_NC = answers.probability_NC.astype(np.float32)
        return Answers(prediction_N, confidence_N, exit_N, plan.cost_E[exit_N], probability_NC)


def all_exit_logits(backend: Backend, images_NKHW: NDArray[np.float32]) -> NDArray[np.float32]:
    """Run all stages and heads on all images, and return the logits of every exit, (N, E, C)."""
    features = backend.start(images_NKHW)
    logits_E = []
    for k in range(backend.exits):
        features, logits_NC = backend.run(k, features)
        logits_E.append(logits_NC)
    return np.stack(logits_E, axis=1)


def join_answers(batches: Sequence[Answers]) -> Answers:
    """Concatenate the answers of several batches."""
    return Answers(*(np.concatenate([getattr(batch, one.name) for batch in batches]) for one in fields(Answers)))


def no_answers() -> Answers:
    integers, floats = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float64)
    return Answers(integers, floats, integers, floats, np.empty((0, 0), dtype=np.float32))


def checked_images(images_BKHW: NDArray[np.float32], image_shape: tuple[int, ...] | None = None) -> NDArray[np.float32]:
    """Check shape and type of normalised images, and return them contiguous.

    Args:
        images_BKHW: Images as `Preprocess` returns them.
        image_shape: (K, H, W) that the network needs; None for any.
    """
    is_array = isinstance(images_BKHW, np.ndarray)
    if not is_array:
        raise RequestError(f"{type(images_BKHW).__name__} is refused; give images as an array of normalised float32")
    if images_BKHW.ndim != 4 or (image_shape is not None and images_BKHW.shape[1:] != image_shape):
        wanted = "channels, height, width" if image_shape is None else ", ".join(map(str, image_shape))
        raise RequestError(f"images of shape {images_BKHW.shape} are refused; the network needs (examples, {wanted})")
    if images_BKHW.dtype != np.float32:
        raise RequestError(f"images of type {images_BKHW.dtype} are refused; give normalised float32")
    return np.ascontiguousarray(images_BKHW)
