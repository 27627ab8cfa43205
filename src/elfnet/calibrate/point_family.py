"""The family of operating points of one checkpoint, and the file that stores it (policy.json)."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, ValidationError, model_validator

from elfnet.calibrate.calibration_table import ROUNDING
from elfnet.calibrate.measured_cost import MeasuredCost, TimeBudget
from elfnet.calibrate.operating_point import OperatingPoint, StoredPoint, most_accurate
from elfnet.errors import RequestError, WorkError
from elfnet.evaluate.exit_table import CROSS_FITTING, ExitTable
from elfnet.exits.logit_adjustment import LogitAdjustment
from elfnet.registry import unknown_name
from elfnet.run.json_file import Strict, first_error, read_json, write_json

MULTIPLY_ADDS = "multiply-adds relative to the plain backbone"
"""The default unit of cost."""

FORMAT_VERSION = 2
"""Version of policy.json."""

AGAIN = "calibrate the run again"
"""What the user can do about a damaged file."""


class StoredFamily(Strict):
    """The schema of policy.json: the fields of a `Family`.

    `adjust_tau` and `log_prior` are only written if logits are adjusted, `class_mix` if examples are weighted to one,
    and `checkpoint` if it is not the last, so that other families keep their format.
    """

    format_version: Literal[2]
    checkpoint_sha256: str
    split: str
    n: Annotated[int, Field(ge=0)]
    confidence_scale: tuple[float, ...]
    cost: tuple[float, ...]
    head_cost: tuple[float, ...]
    cost_unit: str
    notes: tuple[str, ...]
    points: tuple[StoredPoint, ...]
    adjust_tau: tuple[float, ...] | None = None
    log_prior: tuple[float, ...] = ()
    class_mix: tuple[float, ...] = ()
    checkpoint: Literal["last", "first-stage"] = "last"

    @model_validator(mode="after")
    def _check_adjustment(self) -> Self:
        if len({"adjust_tau", "log_prior"} & self.model_fields_set) == 1:
            raise ValueError("adjust_tau and log_prior belong together")
        return self


@dataclass(frozen=True, kw_only=True)
class Family:
    """Operating points of one checkpoint, all measured on the same examples.

    Attributes:
        points: in the order in which tables show them; names are unique.
        checkpoint_sha256: hash of the checkpoint that the thresholds were fitted for.
        split: the split they were fitted on; never `test`. `cross-fitting`: training examples, each with the answer of
            a network that was trained without it.
        n: number of examples of that split.
        confidence_scale: one scale per exit, used by the line search; the policy of a point may have its own scales.
        cost: cost up to and including each exit, with all heads run.
        head_cost: cost of each head alone.
        cost_unit: unit of costs and budgets.
        notes: how the points were found, in sentences for the user.
        adjustment: logit adjustment of the line search and of the figures per exit; None for plain logits. The policy
            of a point may have its own adjustment, with the same prior.
        class_mix: share of each class that the examples are weighted to; empty for the mix of the split.
        checkpoint: the checkpoint of the run: `last`, or `first-stage` if its classifiers were better (see
            `choose_classifiers`).

    Example:
        >>> from elfnet import Family, open_run
        >>> family = Family.open(open_run("runs/first").policy_file)
        >>> family.points[0].policy.name
        'full'
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
    class_mix: tuple[float, ...] = ()
    checkpoint: Literal["last", "first-stage"] = "last"

    def __post_init__(self) -> None:
        if not self.points:
            raise RequestError("a family needs at least one operating point; calibrate again")
        names = self.names()
        duplicates = sorted({name for name in names if names.count(name) > 1})
        if duplicates:
            raise RequestError(f"the name of operating point {duplicates[0]!r} is used twice; give each its own name")
        if not self.checkpoint_sha256:
            raise RequestError("checkpoint_sha256 of the family is empty; calibrate again")
        if not len(self.confidence_scale) == len(self.cost) == len(self.head_cost):
            raise RequestError(
                f"a family needs one confidence scale, cost and head cost per exit, found "
                f"{len(self.confidence_scale)}, {len(self.cost)} and {len(self.head_cost)}; calibrate again"
            )
        for point in self.points:
            if point.policy.exits != len(self.confidence_scale):
                raise RequestError(
                    f"operating point {point.name!r} has {point.policy.exits} exits, but the family has "
                    f"{len(self.confidence_scale)}; calibrate again"
                )
        if self.adjustment is not None and self.adjustment.exits != self.exits:
            raise RequestError(
                f"the logit adjustment has {self.adjustment.exits} exits, but the family has {self.exits}; "
                "calibrate again"
            )
        if len({adjustment.log_prior for adjustment in self._adjustments()}) > 1:
            raise RequestError("the logit adjustments of the operating points have different priors; calibrate again")

    def _adjustments(self) -> list[LogitAdjustment]:
        every = [self.adjustment, *(point.policy.adjustment for point in self.points)]
        return [adjustment for adjustment in every if adjustment is not None]

    @property
    def log_prior(self) -> tuple[float, ...]:
        """Log prior of each class if logits are adjusted, else empty."""
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
        """Return the family of points that were fitted on a table; costs and checkpoint are those of the table."""
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
            class_mix=() if table.target_C is None else tuple(table.target_C.tolist()),
        )

    @property
    def exits(self) -> int:
        return len(self.cost)

    @property
    def chosen_on(self) -> str:
        """The examples that the thresholds were chosen on, such as `calibration split, n = 1,000`."""
        if self.split == CROSS_FITTING:
            return f"training examples by cross-fitting (estimates, no promise), n = {self.n:,}"
        return f"{self.split} split, n = {self.n:,}"

    @property
    def plain_exit(self) -> int:
        """Index of the exit at the end of the plain backbone: the last exit, or with experts that of the first expert.

        This exit costs 1 if no earlier head is run.
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
        """Return the point with this name.

        Raises:
            RequestError: there is no such point; the message lists the names, of each series such as `budget=...` one.
        """
        for point in self.points:
            if point.name == name:
                return point
        one_of_each = {known.partition("=")[0]: known for known in self.names()}.values()
        raise unknown_name("operating point", name, self.names(), instead=f"choose from: {', '.join(one_of_each)}")

    @property
    def default(self) -> OperatingPoint:
        """The point to use if none is named: `accurate` if it is better than full depth beyond noise, else the first.

        With an earlier exit that beats the last one, full depth is not the best answer.
        """
        chosen = next((point for point in self.points if point.name == "accurate"), self.points[0])
        is_better = chosen.expected.balanced_accuracy > self.points[0].expected.balanced_accuracy
        return chosen if is_better and chosen.expected.mean_cost <= 1.0 + ROUNDING else self.points[0]

    def for_budget(self, budget: float | TimeBudget, *, times: MeasuredCost | None = None) -> OperatingPoint:
        """Return the point with the highest balanced accuracy whose mean cost is at most `budget`.

        Both are measured on the calibration split, the cost in `cost_unit`. Among equally accurate points the cheapest
        is returned.

        Args:
            budget: a mean cost, or the mean milliseconds per image.
            times: time of the stages on this machine, for a budget in milliseconds.

        Raises:
            RequestError: all points cost more.
        """
        if isinstance(budget, TimeBudget):
            return self._within_time(budget, times)
        within = [point for point in self.points if point.expected.mean_cost <= budget + ROUNDING]
        if not within:
            cheapest = min(self.points, key=lambda point: point.expected.mean_cost)
            raise RequestError(
                f"no operating point has a mean cost within {budget:g}; "
                f"the cheapest is {cheapest.name!r} at {cheapest.expected.mean_cost:.4g}"
            )
        return most_accurate(within)

    def _within_time(self, budget: TimeBudget, times: MeasuredCost | None) -> OperatingPoint:
        if times is None:
            raise RequestError(f"a budget of {budget} needs times that were measured on this machine; give a mean cost")
        taken = {point.name: times.milliseconds(point.policy, point.expected.exit_share) for point in self.points}
        within = [point for point in self.points if taken[point.name] <= budget.milliseconds]
        if not within:
            fastest = min(taken, key=lambda name: taken[name])
            raise RequestError(
                f"no operating point takes at most {budget} per image on this machine ({times.how}); the fastest is "
                f"{fastest!r} at {taken[fastest]:.3g}ms"
            )
        return most_accurate(within)

    def require_checkpoint(self, sha256: str) -> None:
        """Check that the thresholds were fitted for this checkpoint.

        Raises:
            WorkError: they were fitted for another checkpoint.
        """
        if self.checkpoint_sha256 != sha256:
            raise WorkError(
                f"the operating points are of checkpoint {self.checkpoint_sha256[:12]}, not of {sha256[:12]}; {AGAIN}"
            )

    def to_dict(self) -> dict[str, Any]:
        """Return the family in plain JSON types; the prior of the logit adjustments is stored once for all points."""
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
            **({"class_mix": list(self.class_mix)} if self.class_mix else {}),
            **({"checkpoint": self.checkpoint} if self.checkpoint != "last" else {}),
        }

    def save(self, path: Path) -> None:
        """Write policy.json atomically, with a hash of its content."""
        write_json(path, self.to_dict())

    @classmethod
    def open(cls, path: Path, *, checkpoint_sha256: str | None = None) -> Self:
        """Read a file that `save` wrote and check every field.

        Args:
            path: the file, usually policy.json.
            checkpoint_sha256: if given, the checkpoint that the family must belong to.

        Raises:
            WorkError: the file is missing or damaged, or it belongs to another checkpoint.
        """
        if not path.is_file():
            way_out = f"calibrate the run first: elfnet calibrate {path.parent}"
            raise WorkError(f"there are no operating points at {path}; {way_out}")
        content = read_json(path, way_out=AGAIN)
        family = cls.from_dict(content, where=str(path))
        if checkpoint_sha256 is not None:
            family.require_checkpoint(checkpoint_sha256)
        return family

    @classmethod
    def from_dict(cls, content: Any, *, where: str = "this family") -> Self:
        """Read the content that `to_dict` wrote and check every field; `where` names it in error messages."""
        version = content.get("format_version") if isinstance(content, Mapping) else None
        if version != FORMAT_VERSION:
            raise WorkError(
                f"{where} has operating point format {version!r}, this version of elfnet reads {FORMAT_VERSION}; "
                f"{AGAIN}"
            )
        try:
            # JSON has no tuples, so a strict model must read text.
            return cls._from_stored(StoredFamily.model_validate_json(json.dumps(content)))
        except ValidationError as error:
            raise WorkError(f"{where} is damaged ({first_error(error)}); {AGAIN}") from error
        except (RequestError, ValueError) as error:
            raise WorkError(f"{where} is damaged ({error}); {AGAIN}") from error

    @classmethod
    def _from_stored(cls, stored: StoredFamily) -> Self:
        taus = stored.adjust_tau
        return cls(
            points=tuple(OperatingPoint.from_stored(point, log_prior=stored.log_prior) for point in stored.points),
            checkpoint_sha256=stored.checkpoint_sha256,
            split=stored.split,
            n=stored.n,
            confidence_scale=stored.confidence_scale,
            cost=stored.cost,
            head_cost=stored.head_cost,
            cost_unit=stored.cost_unit,
            notes=stored.notes,
            adjustment=None if taus is None else LogitAdjustment(taus, stored.log_prior),
            class_mix=stored.class_mix,
            checkpoint=stored.checkpoint,
        )
