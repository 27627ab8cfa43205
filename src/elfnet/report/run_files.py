"""run.json, metrics.json and log.jsonl of a run as typed values; no other module of the report reads these files."""

# Shapes: C classes

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elfnet.data.long_tail import GROUP_NAMES
from elfnet.errors import WorkError
from elfnet.evaluate.curve import CurvePoint
from elfnet.evaluate.exit_quality import ExitQuality
from elfnet.evaluate.metrics import Metrics
from elfnet.run.directory import RunDirectory, read_json


@dataclass(frozen=True, eq=False, kw_only=True)
class StoredInfo:
    """The part of run.json that the report uses.

    Attributes:
        class_names, class_counts_C: names and training images of each class.
        train, calibration, test: number of examples in each split.
        image_shape: height, width and channels; empty if the run does not state them.
        fingerprint: hash of the data; None if the run does not state it.
        multiply_adds: counted costs of the network; None if the run does not state them.
        external_network: whether the network was passed in from Python instead of built from the recipe.
        command: the command that started the training.
        versions, hardware, machine, seeds: facts by name, as they were stored.
    """

    class_names: tuple[str, ...]
    class_counts_C: NDArray[np.int64]
    train: int
    calibration: int
    test: int
    image_shape: tuple[int, ...]
    fingerprint: str | None
    multiply_adds: "StoredCosts | None"
    external_network: bool
    command: str | None
    versions: Mapping[str, object]
    hardware: Mapping[str, object]
    machine: Mapping[str, object]
    seeds: Mapping[str, object]


@dataclass(frozen=True)
class StoredCosts:
    """Multiply-adds for one image.

    Attributes:
        plain: of the backbone without exits.
        stages, heads: of each stage and each head, in order.
    """

    plain: int
    stages: tuple[int, ...]
    heads: tuple[int, ...]


def read_info(run: RunDirectory) -> StoredInfo:
    """Read run.json.

    Raises:
        WorkError: the file is missing or damaged.
    """
    content = run.info()
    try:
        data = content["data"]
        info = StoredInfo(
            class_names=tuple(str(name) for name in data["class_names"]),
            class_counts_C=np.array(data["class_counts"], dtype=np.int64),
            train=int(data["train"]),
            calibration=int(data["calibration"]),
            test=int(data["test"]),
            image_shape=tuple(int(side) for side in data.get("image_shape", ())),
            fingerprint=data.get("fingerprint"),
            multiply_adds=_costs(content.get("multiply_adds")),
            external_network="network" in content,
            command=content.get("command"),
            versions=dict(content.get("versions", {})),
            hardware=dict(content.get("hardware", {})),
            machine=dict(content.get("machine", {})),
            seeds=dict(content.get("seeds", {})),
        )
        if len(info.class_names) != len(info.class_counts_C):
            raise ValueError("the numbers of class names and counts differ")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise WorkError(f"{run.info_file} is damaged ({error}); restore it from a copy, or train again") from error
    return info


def _costs(content: Mapping[str, Any] | None) -> StoredCosts | None:
    if content is None:
        return None
    stages, heads = (tuple(int(cost) for cost in content[part]) for part in ("stages", "heads"))
    return StoredCosts(int(content["plain"]), stages, heads)


@dataclass(frozen=True, kw_only=True)
class StoredResults:
    """metrics.json: what `elfnet calibrate` measured with one checkpoint on one split.

    Attributes:
        points: metrics of each operating point, by name.
        thresholds: thresholds of each operating point, by name.
        exits: quality of each exit if all examples take it.
        curve: metrics for one threshold at all exits, from 0 to 1.
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


def read_results(run: RunDirectory) -> StoredResults:
    """Read metrics.json.

    Raises:
        WorkError: the file is missing or damaged.
    """
    content = read_json(run.metrics_file)
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
            f"{run.metrics_file} is damaged ({type(error).__name__}: {error}); run 'elfnet calibrate {run.root}' again"
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
    """One line of log.jsonl: the part that the report uses.

    Attributes:
        epoch: counted from 0.
        weights: name of the class weights in use; "none" before deferred re-weighting.
        loss: training loss.
        exit_share: share of the training examples that exit at each exit.
        loss_by_exit: mean loss, summed over the visited exits, of the examples that exit there; None if there are none.
        increasing_loss: "holds", "does not hold" or "undefined".
        low_confidence_head_loss_share: share of the loss from head-class examples with a true-class confidence of at
            most 0.1.
        high_confidence_tail_loss_share: share of the loss from tail-class examples with a true-class confidence of at
            least 0.9.
        calibration_balanced_accuracy: at full depth; None if the epoch was not evaluated.
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


def read_epochs(run: RunDirectory) -> tuple[EpochRecord, ...]:
    """Read log.jsonl, one record per epoch; empty if the run has no log.

    Raises:
        WorkError: the file is damaged.
    """
    try:
        return tuple(_epoch(record) for record in run.log())
    except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise WorkError(f"{run.log_file} is damaged ({error}); restore it from a copy, or train again") from error


def _epoch(record: Mapping[str, Any]) -> EpochRecord:
    return EpochRecord(
        epoch=int(record["epoch"]),
        learning_rate=float(record["learning_rate"]),
        weights=str(record["weights"]),
        loss=float(record["loss"]),
        exit_share=tuple(float(share) for share in record["exit_share"]),
        loss_by_exit=tuple(_optional(loss) for loss in record["loss_by_exit"]),
        increasing_loss=str(record["increasing_loss"]),
        low_confidence_head_loss_share=_optional(record.get("low_confidence_head_loss_share")),
        high_confidence_tail_loss_share=_optional(record.get("high_confidence_tail_loss_share")),
        calibration_balanced_accuracy=_optional(record.get("calibration_balanced_accuracy")),
        seconds=float(record.get("seconds", 0.0)),
    )


def reweighting_start(epochs: Sequence[EpochRecord]) -> int | None:
    """Return the first epoch with class weights after one without; None if the weights never changed."""
    for before, now in pairwise(epochs):
        if before.weights == "none" and now.weights != "none":
            return now.epoch
    return None


def _optional(value: Any) -> float | None:
    return None if value is None else float(value)
