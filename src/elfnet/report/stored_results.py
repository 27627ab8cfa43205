"""metrics.json as typed values: what `elfnet calibrate` measured on the test split."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elfnet.checkpoint.run_directory import read_json
from elfnet.data.groups import GROUP_NAMES
from elfnet.errors import WorkError
from elfnet.evaluate.accuracy import Metrics
from elfnet.evaluate.by_exit import ExitQuality
from elfnet.evaluate.curve import CurvePoint


@dataclass(frozen=True, kw_only=True)
class StoredResults:
    """Results of one checkpoint on one split.

    Attributes:
        points: the metrics of each operating point, by name.
        thresholds: the thresholds they were measured at, by name.
        exits: each exit taken by everybody.
        curve: one threshold for all exits, from 0 to 1.
    """

    split: str
    n: int
    checkpoint_sha256: str
    cost_unit: str
    plain_multiply_adds: int
    points: dict[str, Metrics]
    thresholds: dict[str, tuple[float, ...]]
    exits: tuple[ExitQuality, ...]
    curve: tuple[CurvePoint, ...]


def read_results(path: Path) -> StoredResults:
    """Read metrics.json; one line if it is not what was written."""
    content = read_json(path)
    try:
        return StoredResults(
            split=str(content["split"]),
            n=int(content["n"]),
            checkpoint_sha256=str(content["checkpoint_sha256"]),
            cost_unit=str(content["cost_unit"]),
            plain_multiply_adds=int(content["plain_multiply_adds"]),
            points={str(name): _metrics(point) for name, point in content["points"].items()},
            thresholds={str(name): tuple(point["thresholds"]) for name, point in content["points"].items()},
            exits=tuple(ExitQuality(**quality) for quality in content["exits"]),
            curve=tuple(
                CurvePoint(**{**point, "exit_share": tuple(point["exit_share"])}) for point in content["curve"]
            ),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise WorkError(
            f"{path} is damaged ({type(error).__name__}: {error}); run 'elfnet calibrate {path.parent}' again"
        ) from error


def _metrics(point: Mapping[str, Any]) -> Metrics:
    shares = point["exit_share_by_group"]
    return Metrics(
        n=int(point["n"]),
        n_by_group={name: int(point["n_by_group"][name]) for name in GROUP_NAMES},
        accuracy=float(point["accuracy"]),
        accuracy_by_group={name: _optional(point["accuracy_by_group"][name]) for name in GROUP_NAMES},
        accuracy_by_class=tuple(_optional(accuracy) for accuracy in point["accuracy_by_class"]),
        balanced_accuracy=float(point["balanced_accuracy"]),
        macro_f1=float(point["macro_f1"]),
        mean_cost=float(point["mean_cost"]),
        worst_cost=float(point["worst_cost"]),
        exit_share=tuple(float(share) for share in point["exit_share"]),
        exit_share_by_group={
            name: None if shares[name] is None else tuple(float(share) for share in shares[name])
            for name in GROUP_NAMES
        },
        confusion_CC=None,  # C x C numbers that the page does not show
    )


def _optional(value: Any) -> float | None:
    return None if value is None else float(value)
