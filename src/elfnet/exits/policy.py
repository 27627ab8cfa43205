"""The inference rule (eq. 5): leave at the first exit whose largest probability exceeds that exit's threshold.

NumPy only: evaluation, calibration and serving share this decision, and serving has no torch.
"""

# Shapes: N examples, E exits, C classes, T = E - 1 exits that have a threshold (the last one takes all who are left)
# Shapes: E exits

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from elfnet.errors import RequestError
from elfnet.exits.logit_adjustment import LogitAdjustment

NEVER = 1.0
"""A threshold that no confidence exceeds: nobody leaves at this exit."""
Measure = Literal["probability", "entropy"]
MEASURES: tuple[Measure, ...] = ("probability", "entropy")
"""What a confidence is: the largest probability, or 1 - entropy / log C, which BranchyNet decides by."""


class Decision(NamedTuple):
    """What one exit says about a batch.

    Attributes:
        leaves_N: who leaves here.
        prediction_N: the answer.
        confidence_N: its probability, or what else the policy decides by.
        probability_NC: of all classes.
        evidence_NC: the sum of scaled logits so far, which the next exit of a combining policy adds to; else None.
    """

    leaves_N: NDArray[np.bool_]
    prediction_N: NDArray[np.int64]
    confidence_N: NDArray[np.float64]
    probability_NC: NDArray[np.float64]
    evidence_NC: NDArray[np.float64] | None


class ConfidenceSpec(NamedTuple):
    """How a confidence is made of logits; the fields are those of `Policy`."""

    confidence_scale: tuple[float, ...]
    combine: bool
    measure: Measure
    adjustment: LogitAdjustment | None = None


@dataclass(frozen=True)
class Policy:
    """One operating point: who leaves where.

    Attributes:
        name: what the point is called in tables and on the command line.
        thresholds: one probability in [0, 1] for every exit but the last.
        confidence_scale: what each exit's logits are multiplied by before the softmax, one number per exit.
        combine: decide and answer from the mean of the scaled logits of all exits up to here, not from the last alone.
        measure: what is compared with the threshold.
        adjustment: what is subtracted from the logits before everything else; None: nothing.
    """

    name: str
    thresholds: tuple[float, ...]
    confidence_scale: tuple[float, ...]
    combine: bool = False
    measure: Measure = "probability"
    adjustment: LogitAdjustment | None = None

    def __post_init__(self) -> None:
        if not self.name:
            raise RequestError("a policy needs a name; give one that is not empty")
        if self.measure not in MEASURES:
            raise RequestError(
                f"policy {self.name!r}: measure {self.measure!r} is unknown; choose from: {', '.join(MEASURES)}"
            )
        if len(self.confidence_scale) != len(self.thresholds) + 1:
            raise RequestError(
                f"policy {self.name!r} has {len(self.thresholds)} thresholds and {len(self.confidence_scale)} "
                f"confidence scales; give one scale per exit and one threshold for every exit but the last"
            )
        for threshold in self.thresholds:
            if not 0.0 <= threshold <= 1.0:
                raise RequestError(
                    f"policy {self.name!r}: threshold {threshold!r} is not between 0 and 1; give a probability"
                )
        for scale in self.confidence_scale:
            if not (math.isfinite(scale) and scale > 0.0):
                raise RequestError(
                    f"policy {self.name!r}: confidence scale {scale!r} must be a number above 0, such as 1"
                )
        if self.adjustment is not None and self.adjustment.exits != self.exits:
            raise RequestError(
                f"policy {self.name!r} is for {self.exits} exits and adjusts the logits of {self.adjustment.exits}; "
                "give one tau per exit"
            )

    @property
    def exits(self) -> int:
        return len(self.confidence_scale)

    @property
    def reading(self) -> "ConfidenceSpec":
        """How a confidence is made of logits; policies that share it differ in thresholds only."""
        return ConfidenceSpec(self.confidence_scale, self.combine, self.measure, self.adjustment)

    def runs_head(self, exit_index: int) -> bool:
        """Whether exit `exit_index` (from 0) is looked at at all: where nobody can leave, its head need not be run."""
        return self.combine or exit_index == self.exits - 1 or self.thresholds[exit_index] < NEVER

    def decide(
        self,
        exit_index: int,
        logits_NC: NDArray[np.floating[Any]],
        evidence_NC: NDArray[np.float64] | None = None,
    ) -> Decision:
        """Who of this batch leaves at exit `exit_index` (from 0), with what answer; at the last exit everybody does.

        Args:
            exit_index: from 0.
            logits_NC: of this exit.
            evidence_NC: of the decision before, for the same examples, if the policy combines; None at the first exit.
        """
        scale = self.confidence_scale[exit_index]
        if self.adjustment is not None:
            logits_NC = self.adjustment.apply(exit_index, logits_NC)
        if self.combine:
            evidence_NC = add_evidence(evidence_NC, logits_NC, scale)
            exponential_NC, prediction_N = _exponential_and_prediction(evidence_NC, 1.0 / (exit_index + 1))
        else:
            evidence_NC = None
            exponential_NC, prediction_N = _exponential_and_prediction(logits_NC, scale)
        # The answer's own exponential is exp(0) = 1, so this is its probability.
        confidence_N = 1.0 / exponential_NC.sum(axis=1)
        probability_NC = exponential_NC
        probability_NC *= confidence_N[:, None]
        if self.measure == "entropy":
            confidence_N = certainty(probability_NC)
        if exit_index == self.exits - 1:
            leaves_N = np.ones(len(confidence_N), dtype=np.bool_)
        else:
            leaves_N = confidence_N > self.thresholds[exit_index]
        return Decision(leaves_N, prediction_N, confidence_N, probability_NC, evidence_NC)

    def first_exit(self, confidence_NE: NDArray[np.float64]) -> NDArray[np.int64]:
        """The exit each example takes, shape (N,), given its confidence at all of them."""
        leaves_NE = np.ones(confidence_NE.shape, dtype=np.bool_)
        np.greater(confidence_NE[:, :-1], np.asarray(self.thresholds, dtype=np.float64), out=leaves_NE[:, :-1])
        first_N: NDArray[np.int64] = np.argmax(leaves_NE, axis=1)
        return first_N

    def reachable(self, classes: int) -> tuple[bool, ...]:
        """For each exit, whether any input at all could leave there.

        The largest of C probabilities lies in [1/C, 1]: nobody leaves at a threshold of 1, and nobody passes an exit
        whose threshold is below 1/C. The other measure begins at 0.
        """
        answer = []
        passable = True
        least = 1.0 / classes if self.measure == "probability" else 0.0
        for threshold in self.thresholds:
            answer.append(passable and threshold < NEVER)
            passable = passable and threshold >= least
        return (*answer, passable)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types. Of an adjustment only the taus are there: its prior, one for all policies of a model, is
        stored beside them.
        """
        content = {
            "name": self.name,
            "thresholds": list(self.thresholds),
            "confidence_scale": list(self.confidence_scale),
            "combine": self.combine,
            "measure": self.measure,
        }
        return content if self.adjustment is None else {**content, "adjust_tau": list(self.adjustment.taus)}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any], *, log_prior: tuple[float, ...] = ()) -> Self:
        """Read what `to_dict` wrote.

        Args:
            log_prior: of each class; needed if the policy adjusts logits.

        Raises:
            RequestError: the content is anything else.
        """
        fields = {"name", "thresholds", "confidence_scale", "combine", "measure", "adjust_tau"}
        # Policies from before there was a choice of measure do not have it.
        if not isinstance(content, Mapping) or {*content, "measure", "adjust_tau"} != fields:
            raise RequestError(
                "a policy has exactly the fields name, thresholds, confidence_scale, combine, measure and, if it "
                "adjusts logits, adjust_tau; write it again"
            )
        name, combine = content["name"], content["combine"]
        if not isinstance(name, str):
            raise RequestError(f"policy name {name!r} is not a text; write the policy again")
        if not isinstance(combine, bool):
            raise RequestError(f"policy {name!r}: combine={combine!r} is not true or false; write the policy again")
        numbers = {field: _numbers(name, field, content[field]) for field in ("thresholds", "confidence_scale")}
        adjustment = None
        if "adjust_tau" in content:
            if not log_prior:
                raise RequestError(f"policy {name!r} has adjust_tau and there is no log_prior; give the classes' prior")
            adjustment = LogitAdjustment(_numbers(name, "adjust_tau", content["adjust_tau"]), log_prior)
        measure = content.get("measure", "probability")
        return cls(name=name, combine=combine, measure=measure, adjustment=adjustment, **numbers)


def uniform_policy(
    name: str, threshold: float, exits: int, scale: float | Sequence[float], *, measure: Measure = "probability"
) -> Policy:
    """The paper's family: one threshold s for all exits but the last."""
    return Policy(name, (float(threshold),) * (exits - 1), scale_per_exit(scale, exits), measure=measure)


def full_depth(
    exits: int,
    scale: float | Sequence[float],
    *,
    measure: Measure = "probability",
    adjustment: LogitAdjustment | None = None,
) -> Policy:
    """Nobody leaves early; named `full`."""
    return replace(uniform_policy("full", NEVER, exits, scale, measure=measure), adjustment=adjustment)


def scale_per_exit(scale: float | Sequence[float], exits: int) -> tuple[float, ...]:
    """One confidence scale per exit, from one number for all or one for each."""
    if isinstance(scale, Sequence):
        if len(scale) != exits:
            raise RequestError(
                f"{len(scale)} confidence scales given for {exits} exits; give one number, or one per exit"
            )
        return tuple(float(value) for value in scale)
    return (float(scale),) * exits


def confidence_and_prediction(
    logits_NC: NDArray[np.floating[Any]], scale: float
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """max softmax(scale * logits) in float64 and the argmax, each of shape (N,).

    The largest probability is 1 / sum exp(scale * (logit - largest logit)): it cannot overflow, and lies in [1/C, 1].
    It is NaN where the logits hold a NaN or +inf.
    """
    exponential_NC, prediction_N = _exponential_and_prediction(logits_NC, scale)
    return 1.0 / exponential_NC.sum(axis=1), prediction_N


def certainty_and_prediction(
    logits_NC: NDArray[np.floating[Any]], scale: float
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """1 - entropy / log C of softmax(scale * logits), and the argmax, each of shape (N,)."""
    probability_NC, prediction_N = probability_and_prediction(logits_NC, scale)
    return certainty(probability_NC), prediction_N


def certainty(probability_NC: NDArray[np.float64]) -> NDArray[np.float64]:
    """1 - entropy / log C, shape (N,): 0 where all classes are alike, 1 where one has it all."""
    classes = probability_NC.shape[1]
    if classes == 1:
        return np.ones(len(probability_NC))
    log_NC = np.zeros_like(probability_NC)
    np.log(probability_NC, out=log_NC, where=probability_NC > 0)
    certainty_N: NDArray[np.float64] = 1.0 + np.einsum("nc,nc->n", probability_NC, log_NC) / math.log(classes)
    return certainty_N


def probability_and_prediction(
    logits_NC: NDArray[np.floating[Any]], scale: float
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """softmax(scale * logits) in float64, shape (N, C), and the argmax, shape (N,).

    The probability of the answer is bit for bit what `confidence_and_prediction` gives.
    """
    exponential_NC, prediction_N = _exponential_and_prediction(logits_NC, scale)
    exponential_NC *= 1.0 / exponential_NC.sum(axis=1, keepdims=True)
    return exponential_NC, prediction_N


def add_evidence(
    evidence_NC: NDArray[np.float64] | None, logits_NC: NDArray[np.floating[Any]], scale: float
) -> NDArray[np.float64]:
    """The sum of scaled logits up to an exit; None is no evidence yet."""
    scaled_NC = logits_NC.astype(np.float64)
    scaled_NC *= scale
    return scaled_NC if evidence_NC is None else evidence_NC + scaled_NC


def _exponential_and_prediction(
    logits_NC: NDArray[np.floating[Any]], scale: float
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """exp(scale * (logit - largest logit)), and where the largest is."""
    prediction_N: NDArray[np.int64] = logits_NC.argmax(axis=1)
    shifted_NC = logits_NC.astype(np.float64)
    largest_N = shifted_NC[np.arange(len(shifted_NC)), prediction_N]
    with np.errstate(invalid="ignore"):
        shifted_NC -= largest_N[:, None]
    shifted_NC *= scale
    return np.exp(shifted_NC, out=shifted_NC), prediction_N


def _numbers(name: str, field: str, values: Any) -> tuple[float, ...]:
    if not isinstance(values, list) or any(isinstance(v, bool) or not isinstance(v, int | float) for v in values):
        raise RequestError(
            f"policy {name!r}: {field} must be a list of numbers, not {values!r}; write the policy again"
        )
    return tuple(float(value) for value in values)


def cost_to_exit(
    cost_E: Sequence[float] | NDArray[np.float64],
    head_cost_E: Sequence[float] | NDArray[np.float64] | None,
    policy: Policy,
) -> NDArray[np.float64]:
    """Cost up to and including each exit, shape (E,).

    Args:
        cost_E: the same with all heads run.
        head_cost_E: of each head alone; None where it is not known, and then nothing is taken off.
        policy: says which heads are run.
    """
    all_heads_E = np.asarray(cost_E, dtype=np.float64)
    if head_cost_E is None:
        return all_heads_E
    skipped_E = np.array([not policy.runs_head(k) for k in range(policy.exits)])
    saved_E: NDArray[np.float64] = np.cumsum(np.where(skipped_E, head_cost_E, 0.0))
    return all_heads_E - saved_E
