"""run.json, metrics.json and log.jsonl of a run as typed values. No other module of the report reads these files."""

# Shapes: E exits

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

from elfnet.checkpoint.run_directory import RunDirectory, read_json
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


@dataclass(frozen=True, kw_only=True)
class EpochRecord:
    """What the report uses of an epoch.

    Attributes:
        epoch: counted from 0.
        weights: the name of the class weights in force; "none" before deferred re-weighting.
        loss: the training loss.
        exit_share: share of the training examples leaving at each exit.
        loss_by_exit: average loss, summed over the exits visited, of those leaving there; None where nobody left.
        increasing_loss: "holds", "does not hold" or "undefined".
        low_confidence_head_loss_share: of frequent classes' examples that the network gives less than 0.1.
        high_confidence_tail_loss_share: of rare classes' examples that it gives more than 0.9.
        calibration_balanced_accuracy: at full depth; None where the epoch was not evaluated.
        seconds: wall time.
    """

    epoch: int
    learning_rate: float
    weights: str
    loss: float
    exit_share: tuple[float, ...]
    loss_by_exit: tuple[float | None, ...]
    increasing_loss: str
    low_confidence_head_loss_share: float | None
    high_confidence_tail_loss_share: float | None
    calibration_balanced_accuracy: float | None
    seconds: float

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        return cls(
            epoch=int(record["epoch"]),
            learning_rate=float(record["learning_rate"]),
            weights=str(record["weights"]),
            loss=float(record["loss"]),
            exit_share=tuple(float(share) for share in record["exit_share"]),
            loss_by_exit=tuple(None if loss is None else float(loss) for loss in record["loss_by_exit"]),
            increasing_loss=str(record["increasing_loss"]),
            low_confidence_head_loss_share=_optional(record.get("low_confidence_head_loss_share")),
            high_confidence_tail_loss_share=_optional(record.get("high_confidence_tail_loss_share")),
            calibration_balanced_accuracy=_optional(record.get("calibration_balanced_accuracy")),
            seconds=float(record.get("seconds", 0.0)),
        )


def read_epochs(run: RunDirectory) -> tuple[EpochRecord, ...]:
    """Every epoch of a run's log; none if there is no log."""
    try:
        return tuple(EpochRecord.from_dict(record) for record in run.log())
    except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise WorkError(f"{run.log_file} is damaged ({error}); restore it from a copy, or train again") from error


def reweighting_start(epochs: Sequence[EpochRecord]) -> int | None:
    """The first epoch with class weights after one without; None if they never changed."""
    for before, now in pairwise(epochs):
        if before.weights == "none" and now.weights != "none":
            return now.epoch
    return None


def _optional(value: Any) -> float | None:
    return None if value is None else float(value)
