"""One operating point: a named policy with the accuracy and cost that it has on the calibration split.

`StoredPoint` and `StoredPolicy` are the schema of a point in policy.json and in the manifest of a bundle. They check
names and types. What holds for every policy and point, wherever it comes from, is checked by `Policy` and
`OperatingPoint` themselves. These are dataclasses without pydantic: searches and the engine make many policies from
NumPy values, and `dataclasses.replace` checks the copy.
"""

from dataclasses import dataclass, replace
from typing import Any, Self

from pydantic import JsonValue

from elfnet.errors import RequestError
from elfnet.exits.logit_adjustment import LogitAdjustment
from elfnet.exits.policy import Measure, Policy
from elfnet.registry import unknown_name
from elfnet.run.json_file import Strict
from elfnet.run.results import AccuracyByGroup, Metrics

RULES = ("full depth", "line search", "geometric", "budget", "floor", "risk control", "fixed")
"""How the thresholds of a point were found. The thresholds of `fixed` points were given by the user."""

Numbers = tuple[float, ...]


class HeldOut(Strict):
    """Accuracy at the class mix of the calibration, and its 95 % interval.

    Attributes:
        accuracy: mean over the held-out examples, weighted to the class mix.
        low, high: ends of the interval.
        n: number of held-out examples.
    """

    accuracy: float
    low: float
    high: float
    n: int


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
    held_out: HeldOut | None = None


@dataclass(frozen=True, kw_only=True)
class OperatingPoint:
    """A named policy with its expected accuracy and cost.

    Attributes:
        name: `full`, `accurate`, `economic`, `budget=0.6`, or a candidate of the line search such as `s=0.85`.
        policy: the thresholds and the confidence that they are compared with; it has the same name.
        expected: figures measured on the calibration split.
        rule: how the thresholds were found; one of `RULES`.
        same_as: for a point chosen among candidates, the name of the candidate.
        promise: for `risk control`, the guarantee and its probability, as plain JSON; None for the other rules.
        held_out: accuracy to expect, from examples that did not choose the thresholds; None if it was not estimated.
    """

    name: str
    policy: Policy
    expected: Expected
    rule: str
    same_as: str | None = None
    promise: dict[str, Any] | None = None
    held_out: HeldOut | None = None

    def __post_init__(self) -> None:
        if self.name != self.policy.name:
            raise RequestError(
                f"operating point {self.name!r} holds policy {self.policy.name!r}; give both the same name"
            )
        if self.rule not in RULES:
            raise unknown_name(f"rule of operating point {self.name!r}", self.rule, list(RULES))

    def renamed(self, name: str) -> Self:
        """Return a copy with another name; `same_as` of the copy is the name of this point."""
        return replace(self, name=name, policy=replace(self.policy, name=name), same_as=self.name)

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "rule": self.rule,
            "same_as": self.same_as,
            "promise": self.promise,
            "policy": self.policy.to_dict(),
            "expected": self.expected.to_json(),
            **({} if self.held_out is None else {"held_out": self.held_out.to_json()}),
        }

    @classmethod
    def from_stored(cls, stored: StoredPoint, *, log_prior: tuple[float, ...] = ()) -> Self:
        """Return the point of a file.

        Args:
            log_prior: log prior of each class; needed if the policy adjusts logits.

        Raises:
            RequestError: its fields contradict each other.
        """
        return cls(
            name=stored.name,
            rule=stored.rule,
            same_as=stored.same_as,
            promise=stored.promise,
            policy=stored.policy.policy(log_prior),
            expected=stored.expected,
            held_out=stored.held_out,
        )


def most_accurate(points: list[OperatingPoint]) -> OperatingPoint:
    """Return the point with the highest balanced accuracy; of equally accurate points the cheapest, then the first."""
    best = max(point.expected.balanced_accuracy for point in points)
    # Sums of the same terms in another order differ in the last bits only.
    equal = [point for point in points if point.expected.balanced_accuracy >= best - 1e-12]
    return min(equal, key=lambda point: point.expected.mean_cost)
