"""One operating point: a named policy with the accuracy and cost that it has on the calibration split."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from elfnet.data.long_tail import GROUP_NAMES
from elfnet.errors import RequestError
from elfnet.evaluate.metrics import Metrics
from elfnet.exits.policy import Policy
from elfnet.registry import unknown_name

RULES = ("full depth", "line search", "geometric", "budget", "floor", "risk control", "fixed")
"""How the thresholds of a point were found. The thresholds of `fixed` points were given by the user."""


@dataclass(frozen=True, kw_only=True)
class Expected:
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
    accuracy_by_group: dict[str, float | None]
    balanced_accuracy: float
    mean_cost: float
    worst_cost: float
    exit_share: tuple[float, ...]

    @classmethod
    def from_metrics(cls, metrics: Metrics) -> Self:
        return cls(
            accuracy=metrics.accuracy,
            accuracy_by_group=dict(metrics.accuracy_by_group),
            balanced_accuracy=metrics.balanced_accuracy,
            mean_cost=metrics.mean_cost,
            worst_cost=metrics.worst_cost,
            exit_share=metrics.exit_share,
        )

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        _require_fields("expected", content, set(cls.__dataclass_fields__))
        by_group = content["accuracy_by_group"]
        _require_fields("accuracy_by_group", by_group, set(GROUP_NAMES))
        return cls(
            accuracy=_number("accuracy", content["accuracy"]),
            accuracy_by_group={
                name: None if by_group[name] is None else _number(name, by_group[name]) for name in GROUP_NAMES
            },
            balanced_accuracy=_number("balanced_accuracy", content["balanced_accuracy"]),
            mean_cost=_number("mean_cost", content["mean_cost"]),
            worst_cost=_number("worst_cost", content["worst_cost"]),
            exit_share=tuple(_number("exit_share", share) for share in content["exit_share"]),
        )


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
    """

    name: str
    policy: Policy
    expected: Expected
    rule: str
    same_as: str | None = None
    promise: dict[str, Any] | None = None

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
            "expected": {**asdict(self.expected), "exit_share": list(self.expected.exit_share)},
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any], *, log_prior: tuple[float, ...] = ()) -> Self:
        """Read the content that `to_dict` wrote.

        Args:
            content: the fields of the point.
            log_prior: log prior of each class; needed if the policy adjusts logits.

        Raises:
            RequestError: a field is missing, unknown or of the wrong type.
        """
        _require_fields("operating point", content, set(cls.__dataclass_fields__))
        if not isinstance(content["same_as"], str | None):
            raise RequestError(f"operating point: same_as={content['same_as']!r} is not a name; calibrate again")
        if not isinstance(content["promise"], dict | None):
            raise RequestError("operating point: promise is not an object; calibrate again")
        return cls(
            name=content["name"],
            rule=content["rule"],
            same_as=content["same_as"],
            promise=content["promise"],
            policy=Policy.from_dict(content["policy"], log_prior=log_prior),
            expected=Expected.from_dict(content["expected"]),
        )


def most_accurate(points: list[OperatingPoint]) -> OperatingPoint:
    """Return the point with the highest balanced accuracy; of equally accurate points the cheapest, then the first."""
    best = max(point.expected.balanced_accuracy for point in points)
    # Sums of the same terms in another order differ in the last bits only.
    equal = [point for point in points if point.expected.balanced_accuracy >= best - 1e-12]
    return min(equal, key=lambda point: point.expected.mean_cost)


def _require_fields(kind: str, content: Any, fields: set[str]) -> None:
    if not isinstance(content, Mapping):
        raise RequestError(f"{kind} is {type(content).__name__}, not an object; calibrate again")
    if set(content) != fields:
        raise RequestError(f"{kind} has missing or unknown fields {sorted(set(content) ^ fields)}; calibrate again")


def _number(field: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RequestError(f"{field}={value!r} is not a number; calibrate again")
    return float(value)
