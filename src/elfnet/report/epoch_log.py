"""log.jsonl as typed records, one an epoch."""

# Shapes: E exits

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

from elfnet.checkpoint.run_directory import RunDirectory
from elfnet.errors import WorkError


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
