"""The family of operating points of one trained model, and the file that keeps it (policy.json)."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from elfnet.atomic import write_json
from elfnet.data.long_tail import GROUP_NAMES
from elfnet.errors import RequestError, WorkError
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.metrics import Metrics
from elfnet.exits.logit_adjustment import LogitAdjustment
from elfnet.exits.policy import Policy
from elfnet.registry import unknown_name

RULES = ("full depth", "line search", "geometric", "budget", "floor", "risk control", "fixed")
"""How a point's thresholds were found. `fixed` ones were written down by somebody."""


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What a point gave on the calibration split: fractions of 1, costs relative to the plain backbone.

    Attributes:
        accuracy: share of right answers.
        accuracy_by_group: the same for many / medium / few; None for a group without examples.
        balanced_accuracy: mean over the classes; equal to `accuracy` on a balanced split.
        mean_cost: mean over the examples, in the family's unit of cost.
        worst_cost: of the deepest exit that any input can reach.
        exit_share: share of the examples leaving at each exit.
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
    """A policy under a name, and what to expect of it.

    Attributes:
        name: `full`, `accurate`, `economic`, `budget=0.6`, or one of a search's candidates such as `s=0.85`.
        policy: the decision itself.
        expected: measured on the calibration split.
        rule: how the thresholds were found; one of `RULES`.
        same_as: for a point chosen from the candidates, the candidate's name.
        promise: for `risk control`, what is promised with which probability, as plain JSON; None elsewhere.
    """

    name: str
    policy: Policy
    expected: Expected
    rule: str
    same_as: str | None = None
    promise: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.name != self.policy.name:
            raise RequestError(f"operating point {self.name!r} holds policy {self.policy.name!r}; give both one name")
        if self.rule not in RULES:
            raise unknown_name(f"rule of operating point {self.name!r}", self.rule, list(RULES))

    def renamed(self, name: str) -> Self:
        """This point under a second name that says what it was chosen for."""
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
        """Read what `to_dict` wrote; anything else is refused.

        Args:
            log_prior: of each class; needed if the policy adjusts logits.
        """
        _require_fields("operating point", content, set(cls.__dataclass_fields__))
        if not isinstance(content["same_as"], str | None):
            raise RequestError(f"operating point: same_as={content['same_as']!r} is not a name; calibrate again")
        if not isinstance(content["promise"], dict | None):
            raise RequestError("operating point: promise is not a set of fields; calibrate again")
        return cls(
            name=content["name"],
            rule=content["rule"],
            same_as=content["same_as"],
            promise=content["promise"],
            policy=Policy.from_dict(content["policy"], log_prior=log_prior),
            expected=Expected.from_dict(content["expected"]),
        )


def _require_fields(kind: str, content: Any, fields: set[str]) -> None:
    if not isinstance(content, Mapping):
        raise RequestError(f"{kind} is {type(content).__name__}, not a set of fields; calibrate again")
    if set(content) != fields:
        raise RequestError(f"{kind} has missing or unknown fields {sorted(set(content) ^ fields)}; calibrate again")


def _number(field: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RequestError(f"{field}={value!r} is not a number; calibrate again")
    return float(value)


ROUNDING = 1e-9
"""Costs and accuracies closer than this are equal: rounding must not exclude a point exactly at the limit."""


def require_calibration(table: ExitTable) -> None:
    """Refuse a table of the test split, and one without examples."""
    if table.split == "test":
        raise RequestError(
            "calibrating on the test split is refused: accuracies measured there would no longer be test results; "
            "use the exit table of the calibration split"
        )
    if table.examples == 0:
        raise RequestError(
            f"the {table.split} exit table has no examples to calibrate on; hold out a larger calibration split"
        )


def require_budget(table: ExitTable, budget: float) -> None:
    """Refuse a mean cost that nobody can keep to, even if all leave at the first exit."""
    cheapest = float(table.cost_E[0])
    if not budget >= cheapest - ROUNDING:
        # Rounded up, so that the number in the message is itself a budget that works.
        least = math.ceil(cheapest * 1e4 - ROUNDING) / 1e4
        raise RequestError(
            f"budget {budget:g} is below the cheapest exit; give {least:g} or more (1 is the plain backbone)"
        )


FORMAT_VERSION = 2
_FIELDS = {
    "format_version",
    "points",
    "checkpoint_sha256",
    "split",
    "n",
    "confidence_scale",
    "cost",
    "head_cost",
    "cost_unit",
    "notes",
}
_FIELDS_OF_ADJUSTMENT = {"adjust_tau", "log_prior"}
"""There only where logits are adjusted, so that a family without it is as it was before there was a choice."""

MULTIPLY_ADDS = "multiply-adds relative to the plain backbone"


@dataclass(frozen=True, kw_only=True)
class Family:
    """Operating points of one checkpoint, all measured on the same examples.

    Attributes:
        points: in the order in which tables show them; names are unique.
        checkpoint_sha256: the checkpoint that the thresholds were fitted for.
        split: the data they were fitted on; never `test`.
        n: number of examples of that split.
        confidence_scale: of the paper's rule, one number per exit; a point's policy may have scales of its own.
        cost: up to and including each exit, all heads run.
        head_cost: of each head alone.
        cost_unit: what costs and budgets are counted in.
        notes: what there is to say about how the points were found.
        adjustment: what is subtracted from the logits of the paper's rule and of each exit on its own; None: nothing.
            A point's policy may have an adjustment of its own, with the same prior.
    """

    points: tuple[OperatingPoint, ...]
    checkpoint_sha256: str
    split: str
    n: int
    confidence_scale: tuple[float, ...]
    cost: tuple[float, ...]
    head_cost: tuple[float, ...]
    cost_unit: str = MULTIPLY_ADDS
    notes: tuple[str, ...] = ()
    adjustment: LogitAdjustment | None = None

    def __post_init__(self) -> None:
        if not self.points:
            raise RequestError("a family has at least one operating point; calibrate again")
        names = self.names()
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise RequestError(f"operating point {twice[0]!r} is there twice; give each its own name")
        if not self.checkpoint_sha256:
            raise RequestError("a family names its checkpoint, but checkpoint_sha256 is empty; calibrate again")
        if not len(self.confidence_scale) == len(self.cost) == len(self.head_cost):
            raise RequestError(
                f"a family has one confidence scale, cost and head cost per exit, found {len(self.confidence_scale)}, "
                f"{len(self.cost)} and {len(self.head_cost)}; calibrate again"
            )
        for point in self.points:
            if point.policy.exits != len(self.confidence_scale):
                raise RequestError(
                    f"operating point {point.name!r} is for {point.policy.exits} exits, the family for "
                    f"{len(self.confidence_scale)}; calibrate again"
                )
        if self.adjustment is not None and self.adjustment.exits != self.exits:
            raise RequestError(
                f"a family of {self.exits} exits adjusts the logits of {self.adjustment.exits}; calibrate again"
            )
        if len({adjustment.log_prior for adjustment in self._adjustments()}) > 1:
            raise RequestError("the operating points adjust logits by different priors; calibrate again")

    def _adjustments(self) -> list[LogitAdjustment]:
        every = [self.adjustment, *(point.policy.adjustment for point in self.points)]
        return [adjustment for adjustment in every if adjustment is not None]

    @property
    def log_prior(self) -> tuple[float, ...]:
        """Of each class, where logits are adjusted; else empty."""
        return next((adjustment.log_prior for adjustment in self._adjustments()), ())

    @classmethod
    def of(
        cls,
        table: ExitTable,
        points: Sequence[OperatingPoint],
        *,
        confidence_scale: tuple[float, ...],
        cost_unit: str = MULTIPLY_ADDS,
        notes: Sequence[str] = (),
    ) -> Self:
        """Points that were fitted on this table."""
        head_cost_E = np.zeros(table.exits) if table.head_cost_E is None else table.head_cost_E
        return cls(
            points=tuple(points),
            checkpoint_sha256=table.checkpoint_sha256,
            split=table.split,
            n=table.examples,
            confidence_scale=confidence_scale,
            cost=tuple(table.cost_E.tolist()),
            head_cost=tuple(head_cost_E.tolist()),
            cost_unit=cost_unit,
            notes=tuple(notes),
            adjustment=table.adjustment,
        )

    @property
    def exits(self) -> int:
        return len(self.cost)

    @property
    def plain_exit(self) -> int:
        """The exit (from 0) that ends the plain backbone: the last; in a network with experts, the first expert's.

        It costs 1 where no head before it is run.
        """
        early_head_cost = 0.0
        for k, (cost, head_cost) in enumerate(zip(self.cost, self.head_cost, strict=True)):
            if abs(cost - early_head_cost - 1.0) <= ROUNDING:
                return k
            early_head_cost += head_cost
        return self.exits - 1

    def names(self) -> list[str]:
        return [point.name for point in self.points]

    def point(self, name: str) -> OperatingPoint:
        """The point of this name; an unknown one lists the choices."""
        for point in self.points:
            if point.name == name:
                return point
        raise unknown_name("operating point", name, self.names())

    def for_budget(self, budget: float) -> OperatingPoint:
        """The most accurate point whose mean cost is within `budget` (relative to the plain backbone).

        Accuracy is the balanced one on the calibration split, as in the line search; the cheaper of two equal points.
        """
        within = [point for point in self.points if point.expected.mean_cost <= budget + ROUNDING]
        if not within:
            cheapest = min(self.points, key=lambda point: point.expected.mean_cost)
            raise RequestError(
                f"no operating point has a mean cost within {budget:g}; "
                f"the cheapest is {cheapest.name!r} at {cheapest.expected.mean_cost:.4g}"
            )
        return most_accurate(within)

    def require_checkpoint(self, sha256: str) -> None:
        """Refuse to use thresholds fitted for another checkpoint."""
        if self.checkpoint_sha256 != sha256:
            raise WorkError(
                f"the operating points are of checkpoint {self.checkpoint_sha256[:12]}, not of {sha256[:12]}; "
                f"calibrate the run again"
            )

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; the prior of an adjustment is there once, for all points."""
        adjusted = {
            "adjust_tau": None if self.adjustment is None else list(self.adjustment.taus),
            "log_prior": list(self.log_prior),
        }
        return {
            "format_version": FORMAT_VERSION,
            "checkpoint_sha256": self.checkpoint_sha256,
            "split": self.split,
            "n": self.n,
            "confidence_scale": list(self.confidence_scale),
            "cost": list(self.cost),
            "head_cost": list(self.head_cost),
            "cost_unit": self.cost_unit,
            "notes": list(self.notes),
            "points": [point.to_dict() for point in self.points],
            **(adjusted if self.log_prior else {}),
        }

    def save(self, path: Path) -> None:
        """Write policy.json; the old file stays until the new one is complete."""
        write_json(path, self.to_dict())

    @classmethod
    def open(cls, path: Path, *, checkpoint_sha256: str | None = None) -> Self:
        """Read what `save` wrote, every field checked; with `checkpoint_sha256`, only if it is of that checkpoint."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise WorkError(f"there are no operating points at {path}; calibrate the run first") from error
        except (OSError, ValueError) as error:
            raise WorkError(f"cannot read {path}: {error}; calibrate the run again") from error
        family = cls.from_dict(content, where=str(path))
        if checkpoint_sha256 is not None:
            family.require_checkpoint(checkpoint_sha256)
        return family

    @classmethod
    def from_dict(cls, content: Any, *, where: str = "this family") -> Self:
        """Read what `to_dict` wrote, every field checked; `where` is what the messages call it."""
        version = content.get("format_version") if isinstance(content, Mapping) else None
        if version != FORMAT_VERSION:
            raise WorkError(
                f"{where} has operating point format {version!r}, this version of elfnet reads {FORMAT_VERSION}; "
                f"calibrate the run again"
            )
        try:
            return cls._from_fields(content)
        except (RequestError, KeyError, TypeError, ValueError) as error:
            raise WorkError(f"{where} is damaged: {error}; calibrate the run again") from error

    @classmethod
    def _from_fields(cls, content: Mapping[str, Any]) -> Self:
        fields = _FIELDS | _FIELDS_OF_ADJUSTMENT if _FIELDS_OF_ADJUSTMENT & set(content) else _FIELDS
        if set(content) != fields:
            raise ValueError(f"missing or unknown fields {sorted(set(content) ^ fields)}")
        if not isinstance(content["points"], list):
            raise TypeError("points is not a list")
        for field in ("checkpoint_sha256", "split", "cost_unit"):
            if not isinstance(content[field], str):
                raise TypeError(f"{field} must be a text")
        log_prior = tuple(float(value) for value in content.get("log_prior", ()))
        taus = content.get("adjust_tau")
        return cls(
            points=tuple(OperatingPoint.from_dict(point, log_prior=log_prior) for point in content["points"]),
            checkpoint_sha256=content["checkpoint_sha256"],
            split=content["split"],
            n=int(content["n"]),
            confidence_scale=tuple(float(scale) for scale in content["confidence_scale"]),
            cost=tuple(float(cost) for cost in content["cost"]),
            head_cost=tuple(float(cost) for cost in content["head_cost"]),
            cost_unit=content["cost_unit"],
            notes=tuple(str(note) for note in content["notes"]),
            adjustment=None if taus is None else LogitAdjustment(tuple(float(tau) for tau in taus), log_prior),
        )


def most_accurate(points: list[OperatingPoint]) -> OperatingPoint:
    """The highest balanced accuracy; of equally accurate points the cheapest, then the first."""
    best = max(point.expected.balanced_accuracy for point in points)
    # The same right answers summed over classes in another order differ in the last bits only.
    equal = [point for point in points if point.expected.balanced_accuracy >= best - 1e-12]
    return min(equal, key=lambda point: point.expected.mean_cost)
