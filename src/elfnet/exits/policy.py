"""Exit policies, the inference rule of eq. 5: stop at the first exit whose confidence exceeds its threshold.

The module holds `Policy`, the functions that turn logits into confidences, probabilities and predictions, and the cost
of each exit under a policy. Evaluation, calibration and serving share this code. NumPy only: serving runs without
torch.
"""

# Shapes: N examples, E exits, C classes

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elfnet.errors import RequestError
from elfnet.exits.logit_adjustment import LogitAdjustment

NEVER = 1.0
"""The threshold that no confidence exceeds: no example stops at an exit with it."""
Measure = Literal["probability", "entropy"]
MEASURES: tuple[Measure, ...] = ("probability", "entropy")
"""Measures of confidence: the largest probability, or 1 - entropy / log C, as in BranchyNet."""


class Decision(NamedTuple):
    """The result of one exit for a batch.

    Attributes:
        leaves_N: whether each example stops at this exit.
        prediction_N: the predicted class.
        confidence_N: the value that is compared with the threshold; see `Policy.measure`.
        probability_NC: the probability of every class.
        evidence_NC: the sum of the scaled logits of all exits so far, to be passed to the next exit; None if the policy
            does not combine exits.
    """

    leaves_N: NDArray[np.bool_]
    prediction_N: NDArray[np.int64]
    confidence_N: NDArray[np.float64]
    probability_NC: NDArray[np.float64]
    evidence_NC: NDArray[np.float64] | None


class ConfidenceSpec(NamedTuple):
    """How confidences are computed from logits; the fields are those of `Policy`."""

    confidence_scale: tuple[float, ...]
    combine: bool
    measure: Measure
    adjustment: LogitAdjustment | None = None


@dataclass(frozen=True)
class Policy:
    """One operating point: it decides at which exit each example stops.

    Attributes:
        name: the name of the operating point in tables and on the command line.
        thresholds: one value in [0, 1] per exit, except for the last exit, where every remaining example stops.
        confidence_scale: the factors that logits are multiplied by before the softmax, one per exit.
        combine: if true, confidence and prediction use the mean of the scaled logits of all exits so far. If false,
            they use the current exit alone.
        measure: the measure of confidence that is compared with the thresholds.
        adjustment: a shift of the logits, applied first; None for no shift.

    Raises:
        RequestError: a field has a wrong value, or the fields disagree about the number of exits.
    """

    name: str
    thresholds: tuple[float, ...]
    confidence_scale: tuple[float, ...]
    combine: bool = False
    measure: Measure = "probability"
    adjustment: LogitAdjustment | None = None

    def __post_init__(self) -> None:
        if not self.name:
            raise RequestError("a policy needs a name; give a name that is not empty")
        if self.measure not in MEASURES:
            raise RequestError(
                f"policy {self.name!r}: measure {self.measure!r} is unknown; choose from: {', '.join(MEASURES)}"
            )
        if len(self.confidence_scale) != len(self.thresholds) + 1:
            raise RequestError(
                f"policy {self.name!r} has {len(self.thresholds)} thresholds and {len(self.confidence_scale)} "
                f"confidence scales; give one scale per exit, and one threshold per exit except for the last"
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
                f"policy {self.name!r} has {self.exits} exits and a logit adjustment for {self.adjustment.exits}; "
                "give one tau per exit"
            )

    @property
    def exits(self) -> int:
        """The number of exits, including the last one."""
        return len(self.confidence_scale)

    @property
    def reading(self) -> "ConfidenceSpec":
        """How confidences are computed from logits. Policies with equal specs differ in name and thresholds only."""
        return ConfidenceSpec(self.confidence_scale, self.combine, self.measure, self.adjustment)

    def runs_head(self, exit_index: int) -> bool:
        """Whether the head of exit `exit_index` (counted from 0) is run.

        It is skipped if no example can stop there and no later exit needs its logits.
        """
        return self.combine or exit_index == self.exits - 1 or self.thresholds[exit_index] < NEVER

    def decide(
        self,
        exit_index: int,
        logits_NC: NDArray[np.floating[Any]],
        evidence_NC: NDArray[np.float64] | None = None,
    ) -> Decision:
        """Compute predictions and confidences at one exit, and which examples stop there.

        At the last exit every example stops.

        Args:
            exit_index: the exit, counted from 0.
            logits_NC: the logits of this exit.
            evidence_NC: for a policy that combines exits, `evidence_NC` of the previous exit's decision for the same
                examples; None at the first exit.
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
        # The exponential of the predicted class is exp(0) = 1, so this is its probability.
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
        """The index of the exit where each example stops, shape (N,), given its confidence at every exit."""
        leaves_NE = np.ones(confidence_NE.shape, dtype=np.bool_)
        np.greater(confidence_NE[:, :-1], np.asarray(self.thresholds, dtype=np.float64), out=leaves_NE[:, :-1])
        first_N: NDArray[np.int64] = np.argmax(leaves_NE, axis=1)
        return first_N

    def reachable(self, classes: int) -> tuple[bool, ...]:
        """Whether any input could stop at each exit.

        The largest of C probabilities lies in [1/C, 1]. So no example stops at a threshold of 1, and no example passes
        an exit whose threshold is below 1/C. The entropy measure has its minimum at 0.
        """
        reachable = []
        passable = True
        least = 1.0 / classes if self.measure == "probability" else 0.0
        for threshold in self.thresholds:
            reachable.append(passable and threshold < NEVER)
            passable = passable and threshold >= least
        return (*reachable, passable)

    def to_dict(self) -> dict[str, Any]:
        """Convert to plain JSON types (see `calibrate.policy_file`).

        Of an adjustment only the taus are included. The prior is the same for all policies of a model and is stored
        beside them.
        """
        content = {
            "name": self.name,
            "thresholds": list(self.thresholds),
            "confidence_scale": list(self.confidence_scale),
            "combine": self.combine,
            "measure": self.measure,
        }
        return content if self.adjustment is None else {**content, "adjust_tau": list(self.adjustment.taus)}


def uniform_policy(
    name: str, threshold: float, exits: int, scale: float | Sequence[float], *, measure: Measure = "probability"
) -> Policy:
    """A policy with the same threshold at every exit except the last, as in the paper."""
    return Policy(name, (float(threshold),) * (exits - 1), scale_per_exit(scale, exits), measure=measure)


def full_depth(
    exits: int,
    scale: float | Sequence[float],
    *,
    measure: Measure = "probability",
    adjustment: LogitAdjustment | None = None,
) -> Policy:
    """The policy named `full`: every example runs to the last exit."""
    return replace(uniform_policy("full", NEVER, exits, scale, measure=measure), adjustment=adjustment)


def scale_per_exit(scale: float | Sequence[float], exits: int) -> tuple[float, ...]:
    """Expand a confidence scale to one number per exit.

    Raises:
        RequestError: a sequence was given whose length is not the number of exits.
    """
    if isinstance(scale, Sequence):
        if len(scale) != exits:
            raise RequestError(
                f"{len(scale)} confidence scales given for {exits} exits; give one number, or one per exit"
            )
        return tuple(float(value) for value in scale)
    return (float(scale),) * exits


def cost_to_exit(
    cost_E: Sequence[float] | NDArray[np.float64],
    head_cost_E: Sequence[float] | NDArray[np.float64] | None,
    policy: Policy,
) -> NDArray[np.float64]:
    """The cost up to and including each exit under a policy, shape (E,), without the heads that the policy skips.

    Args:
        cost_E: the cost up to each exit if all heads are run.
        head_cost_E: the cost of each head alone. If it is None, no head is subtracted.
        policy: decides which heads are run.
    """
    all_heads_E = np.asarray(cost_E, dtype=np.float64)
    if head_cost_E is None:
        return all_heads_E
    skipped_E = np.array([not policy.runs_head(k) for k in range(policy.exits)])
    saved_E: NDArray[np.float64] = np.cumsum(np.where(skipped_E, head_cost_E, 0.0))
    return all_heads_E - saved_E


def confidence_and_prediction(
    logits_NC: NDArray[np.floating[Any]], scale: float
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """max softmax(scale * logits) in float64 and the argmax, each of shape (N,).

    The largest probability is 1 / sum exp(scale * (logit - largest logit)). It cannot overflow and lies in [1/C, 1].
    It is NaN where the logits contain NaN or +inf.
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
    """1 - entropy / log C, shape (N,): 0 for a uniform distribution, 1 if one class has probability 1."""
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

    The probability of the predicted class equals the result of `confidence_and_prediction` bit for bit.
    """
    exponential_NC, prediction_N = _exponential_and_prediction(logits_NC, scale)
    exponential_NC *= 1.0 / exponential_NC.sum(axis=1, keepdims=True)
    return exponential_NC, prediction_N


def add_evidence(
    evidence_NC: NDArray[np.float64] | None, logits_NC: NDArray[np.floating[Any]], scale: float
) -> NDArray[np.float64]:
    """Add the scaled logits of an exit to those of the exits before it; None at the first exit."""
    scaled_NC = logits_NC.astype(np.float64)
    scaled_NC *= scale
    return scaled_NC if evidence_NC is None else evidence_NC + scaled_NC


def _exponential_and_prediction(
    logits_NC: NDArray[np.floating[Any]], scale: float
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """exp(scale * (logit - largest logit)), shape (N, C), and the argmax, shape (N,)."""
    prediction_N: NDArray[np.int64] = logits_NC.argmax(axis=1)
    shifted_NC = logits_NC.astype(np.float64)
    largest_N = shifted_NC[np.arange(len(shifted_NC)), prediction_N]
    with np.errstate(invalid="ignore"):
        shifted_NC -= largest_N[:, None]
    shifted_NC *= scale
    return np.exp(shifted_NC, out=shifted_NC), prediction_N
