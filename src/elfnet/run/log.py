"""log.jsonl: one record per epoch, each line with a checksum of its own."""

import json
import os
import shlex
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from elfnet import atomic
from elfnet.errors import WorkError
from elfnet.run.json_file import RESTORE, Strict, content_sha256, first_error, parse_object

CHECKSUM = "checksum"
CHECKSUM_LENGTH = 16
IncreasingLoss = Literal["holds", "does not hold", "undefined"]


class EpochRecord(Strict):
    """One line of log.jsonl.

    Attributes:
        epoch: counted from 0.
        learning_rate: of the last step.
        weights: name of the class weights in use; "none" before deferred re-weighting.
        loss: training loss.
        exit_share: share of the training examples that exit at each exit.
        loss_by_exit: mean loss, summed over the visited exits, of the examples that exit there; None if there are none.
        increasing_loss: whether `loss_by_exit` increases from exit to exit.
        low_confidence_head_loss_share: share of the loss from head-class examples with a true-class confidence of at
            most 0.1.
        high_confidence_tail_loss_share: share of the loss from tail-class examples with a true-class confidence of at
            least 0.9.
        examples: number of examples shown, with pruning.
        image_side: side of the images relative to the full size, with progressive resizing.
        distil_temperature: after the epoch, with distillation.
        calibration_balanced_accuracy: at full depth; None if the epoch was not evaluated.
        test_accuracy: at full depth, only under the protocol that has no calibration split; nothing is chosen by it.
        seconds: wall time.
        stage: "training" or "balanced", in a run with a balanced stage.
        unreadable: unreadable images so far, if they are skipped.
    """

    epoch: Annotated[int, Field(ge=0)]
    learning_rate: float
    weights: str
    loss: float
    exit_share: tuple[float, ...]
    loss_by_exit: tuple[float | None, ...]
    increasing_loss: IncreasingLoss
    low_confidence_head_loss_share: float | None = None
    high_confidence_tail_loss_share: float | None = None
    examples: int | None = None
    image_side: float | None = None
    distil_temperature: float | None = None
    calibration_balanced_accuracy: float | None = None
    test_accuracy: float | None = None
    seconds: float = 0.0
    stage: str | None = None
    unreadable: int | None = None


def reweighting_start(epochs: Sequence[EpochRecord]) -> int | None:
    """Return the first epoch with class weights after one without; None if the weights never changed."""
    for before, now in pairwise(epochs):
        if before.weights == "none" and now.weights != "none":
            return now.epoch
    return None


def log_line(record: EpochRecord) -> str:
    """The line of a record, with its checksum and a line feed."""
    content = record.to_json()
    return json.dumps({**content, CHECKSUM: content_sha256(content)[:CHECKSUM_LENGTH]}, allow_nan=False) + "\n"


def resume_command(run: Path) -> str:
    """The command that continues the run in this directory, ready to be pasted into a shell."""
    return f"elfnet train --resume --out {shlex.quote(str(run))}"


def write_log(path: Path, records: Iterable[EpochRecord]) -> None:
    """Replace a log atomically."""
    atomic.write_text(path, "".join(map(log_line, records)))


def append_to_log(path: Path, record: EpochRecord) -> None:
    """Append a record to a log."""
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(log_line(record))
            file.flush()
            # The checkpoint, which is written next, must not be on disk before the record of its epoch.
            os.fsync(file.fileno())
    except OSError as error:
        raise WorkError(
            f"cannot write {path}: {error.strerror}; free disk space and continue with: {resume_command(path.parent)}"
        ) from error


def read_log(path: Path) -> tuple[EpochRecord, ...]:
    """Read the records of a log; empty without a file. A last line that a kill left incomplete is left out.

    Lines that earlier versions wrote have no checksum and are accepted.

    Raises:
        WorkError: a line is damaged or was altered.
    """
    try:
        *lines, torn = path.read_bytes().split(b"\n") if path.is_file() else [b""]
    except OSError as error:
        raise WorkError(f"cannot read {path}: {error.strerror}") from error
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            records.append(_parse_line(line))
        except ValueError as error:
            reason = first_error(error) if isinstance(error, ValidationError) else error
            raise WorkError(f"{path} is damaged (line {number}: {reason}); {RESTORE}") from error
    # A complete line ends with a line feed; what follows the last one is complete only if just that is missing.
    with suppress(ValueError):
        records.append(_parse_line(torn))
    return tuple(records)


def _parse_line(line: bytes) -> EpochRecord:
    content = parse_object(line)
    claimed = content.pop(CHECKSUM, None)
    if claimed is not None and claimed != content_sha256(content)[:CHECKSUM_LENGTH]:
        raise ValueError("altered after it was written, its checksum does not match")
    return EpochRecord.model_validate_json(json.dumps(content))
