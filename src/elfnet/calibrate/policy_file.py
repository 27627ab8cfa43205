"""The schema of policy.json, and of the operating points in the manifest of a bundle.

The models check names and types. What holds for every policy, point and family, wherever it comes from, is checked by
`Policy`, `OperatingPoint` and `Family` themselves. These are dataclasses without pydantic: searches and the engine make
many policies from NumPy values, and `dataclasses.replace` checks the copy.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, JsonValue, model_validator

from elfnet.exits.logit_adjustment import LogitAdjustment
from elfnet.exits.policy import Measure, Policy
from elfnet.run.results import AccuracyByGroup, Metrics
from elfnet.strict import Strict

FORMAT_VERSION = 2
"""Version of policy.json."""

Numbers = tuple[float, ...]


class StoredPolicy(Strict):
    """The fields of a `Policy`; of a logit adjustment only the taus, because all points share one prior."""

    name: str
    thresholds: Numbers
    confidence_scale: Numbers
    combine: bool
    # Version 0.1.0 wrote policies without a measure before there were two.
    measure: Measure = "probability"
    adjust_tau: Numbers | None = None

    def policy(self, log_prior: Numbers) -> Policy:
        """Return the policy.

        Raises:
            RequestError: its fields contradict each other.
        """
        adjustment = None if self.adjust_tau is None else LogitAdjustment(self.adjust_tau, log_prior)
        return Policy(self.name, self.thresholds, self.confidence_scale, self.combine, self.measure, adjustment)


class Expected(Strict):
    """Accuracy and cost of a point on the calibration split. Accuracies are fractions between 0 and 1.

    Attributes:
        accuracy: share of correct predictions.
        accuracy_by_group: accuracy of the groups many, medium and few; None for a group without examples.
        balanced_accuracy: mean of the accuracies per class; equal to `accuracy` on a balanced split.
        mean_cost: mean over the examples, in the family's unit of cost.
        worst_cost: cost of the deepest exit that an input can reach.
        exit_share: share of the examples that exit at each exit.
    """

    accuracy: float
    accuracy_by_group: AccuracyByGroup
    balanced_accuracy: float
    mean_cost: float
    worst_cost: float
    exit_share: Numbers

    @classmethod
    def from_metrics(cls, metrics: Metrics) -> Self:
        return cls(**{name: getattr(metrics, name) for name in cls.model_fields})


class StoredPoint(Strict):
    """The fields of an `OperatingPoint`."""

    name: str
    rule: str
    same_as: str | None
    promise: dict[str, JsonValue] | None
    policy: StoredPolicy
    expected: Expected


class StoredFamily(Strict):
    """The fields of a `Family`.

    `adjust_tau` and `log_prior` are only written if logits are adjusted, so that other families keep their format.
    """

    format_version: Literal[2]
    checkpoint_sha256: str
    split: str
    n: Annotated[int, Field(ge=0)]
    confidence_scale: Numbers
    cost: Numbers
    head_cost: Numbers
    cost_unit: str
    notes: tuple[str, ...]
    points: tuple[StoredPoint, ...]
    adjust_tau: Numbers | None = None
    log_prior: Numbers = ()

    @model_validator(mode="after")
    def _check_adjustment(self) -> Self:
        if len({"adjust_tau", "log_prior"} & self.model_fields_set) == 1:
            raise ValueError("adjust_tau and log_prior belong together")
        return self
