"""The family of operating points of one trained model, and the file that keeps it (policy.json)."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from elfnet.atomic import write_json
from elfnet.calibrate.operating_point import OperatingPoint
from elfnet.errors import RequestError, WorkError
from elfnet.registry import unknown_name

FORMAT_VERSION = 1
_FIELDS = {"format_version", "points", "checkpoint_sha256", "split", "n", "confidence_scale"}


@dataclass(frozen=True, kw_only=True)
class Family:
    """Operating points of one checkpoint, all measured on the same examples.

    Attributes:
        points: in the order in which tables show them; names are unique.
        checkpoint_sha256: the checkpoint that the thresholds were fitted for.
        split: the data they were fitted on; never `test`.
        n: number of examples of that split.
        confidence_scale: what logits are multiplied by before the softmax, one number per exit.
    """

    points: tuple[OperatingPoint, ...]
    checkpoint_sha256: str
    split: str
    n: int
    confidence_scale: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.points:
            raise RequestError("a family has at least one operating point; calibrate again")
        names = self.names()
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise RequestError(f"operating point {twice[0]!r} is there twice; give each its own name")
        if not self.checkpoint_sha256:
            raise RequestError("a family names its checkpoint, but checkpoint_sha256 is empty; calibrate again")
        for point in self.points:
            if point.policy.exits != len(self.confidence_scale):
                raise RequestError(
                    f"operating point {point.name!r} is for {point.policy.exits} exits, the family for "
                    f"{len(self.confidence_scale)}; calibrate again"
                )

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
        within = [point for point in self.points if point.expected.mean_cost <= budget]
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
        return {
            "format_version": FORMAT_VERSION,
            "checkpoint_sha256": self.checkpoint_sha256,
            "split": self.split,
            "n": self.n,
            "confidence_scale": list(self.confidence_scale),
            "points": [point.to_dict() for point in self.points],
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
        version = content.get("format_version") if isinstance(content, Mapping) else None
        if version != FORMAT_VERSION:
            raise WorkError(
                f"{path} has operating point format {version!r}, this version of elfnet reads {FORMAT_VERSION}; "
                f"calibrate the run again"
            )
        try:
            family = cls._from_dict(content)
        except (RequestError, KeyError, TypeError, ValueError) as error:
            raise WorkError(f"{path} is damaged: {error}; calibrate the run again") from error
        if checkpoint_sha256 is not None:
            family.require_checkpoint(checkpoint_sha256)
        return family

    @classmethod
    def _from_dict(cls, content: Mapping[str, Any]) -> Self:
        if set(content) != _FIELDS:
            raise ValueError(f"missing or unknown fields {sorted(set(content) ^ _FIELDS)}")
        if not isinstance(content["points"], list):
            raise TypeError("points is not a list")
        if not isinstance(content["checkpoint_sha256"], str) or not isinstance(content["split"], str):
            raise TypeError("checkpoint_sha256 and split must be texts")
        return cls(
            points=tuple(OperatingPoint.from_dict(point) for point in content["points"]),
            checkpoint_sha256=content["checkpoint_sha256"],
            split=content["split"],
            n=int(content["n"]),
            confidence_scale=tuple(float(scale) for scale in content["confidence_scale"]),
        )


def most_accurate(points: list[OperatingPoint]) -> OperatingPoint:
    """The highest balanced accuracy; of equally accurate points the cheapest, then the first."""
    best = max(point.expected.balanced_accuracy for point in points)
    # The same right answers summed over classes in another order differ in the last bits only.
    equal = [point for point in points if point.expected.balanced_accuracy >= best - 1e-12]
    return min(equal, key=lambda point: point.expected.mean_cost)
