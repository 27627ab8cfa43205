"""Loggers and observers of a run: log.jsonl (one record per epoch), TensorBoard, Weights & Biases, progress.

TensorBoard and Weights & Biases need the extra `track`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from elfnet.errors import RequestError
from elfnet.extras import missing_package
from elfnet.recipe.schema import Recipe
from elfnet.run.directory import RunDirectory
from elfnet.run.info import RunInfo
from elfnet.run.log import EpochRecord, append_to_log, read_log, write_log


class Logger(Protocol):
    """Writes one record per epoch."""

    def log(self, record: EpochRecord) -> None:
        """Write the record of an epoch."""

    def close(self) -> None:
        """Finish writing."""


class JsonLines:
    """Appends records to log.jsonl. On resume, records of epochs that will be repeated are removed first.

    Args:
        keep_epochs: number of epochs that the checkpoint has; records from this epoch on are removed.
    """

    def __init__(self, path: Path, *, keep_epochs: int) -> None:
        self._path = path
        write_log(path, [record for record in read_log(path) if record.epoch < keep_epochs])

    def log(self, record: EpochRecord) -> None:
        append_to_log(self._path, record)

    def close(self) -> None:
        pass


def _scalars(record: EpochRecord) -> Iterator[tuple[str, float]]:
    """The numbers of a record by name. List entries are numbered from 1 (the exit); undefined values are omitted."""
    for name, value in record.to_json().items():
        values = (
            [(f"{name}/{k + 1}", one) for k, one in enumerate(value)] if isinstance(value, list) else [(name, value)]
        )
        for key, one in values:
            if isinstance(one, (int, float)) and not isinstance(one, bool):
                yield key, float(one)


class TensorBoard:
    """Writes event files in the run directory; `tensorboard --logdir RUN` shows them."""

    def __init__(self, directory: Path, *, purge_epoch: int) -> None:
        try:
            from torch.utils.tensorboard.writer import SummaryWriter
        except ImportError:
            raise RequestError(missing_package("track.tensorboard=true", "tensorboard")) from None
        self._writer = SummaryWriter(str(directory), purge_step=purge_epoch)

    def log(self, record: EpochRecord) -> None:
        for name, value in _scalars(record):
            self._writer.add_scalar(name, value, record.epoch)

    def close(self) -> None:
        self._writer.close()


class WeightsAndBiases:
    """Logs to Weights & Biases; with WANDB_MODE=offline the log stays on this machine."""

    def __init__(self, directory: Path, *, project: str, name: str, recipe: dict[str, Any]) -> None:
        try:
            import wandb
        except ImportError:
            raise RequestError(missing_package("track.wandb=true", "wandb")) from None
        # The id is the name of the run, so that a resumed run continues the same log.
        self._run = wandb.init(project=project, name=name, id=name, resume="allow", dir=str(directory), config=recipe)

    def log(self, record: EpochRecord) -> None:
        self._run.log(dict(_scalars(record)), step=record.epoch)

    def close(self) -> None:
        self._run.finish()


def open_loggers(run: RunDirectory, recipe: Recipe, epochs_done: int) -> list[Logger]:
    """Open log.jsonl and the loggers of the recipe's track section, after `epochs_done` epochs."""
    loggers: list[Logger] = [JsonLines(run.log_file, keep_epochs=epochs_done)]
    if recipe.track.tensorboard:
        loggers.append(TensorBoard(run.root / "tensorboard", purge_epoch=epochs_done))
    if recipe.track.wandb:
        loggers.append(
            WeightsAndBiases(
                run.root, project=recipe.track.wandb_project, name=run.root.resolve().name, recipe=recipe.model_dump()
            )
        )
    return loggers


class Observer(Protocol):
    """Shows the progress of a run, for example as a progress bar."""

    def started(self, recipe: Recipe, info: RunInfo, epochs_done: int) -> None:
        """Called once, before the first step; `info` is the content of run.json."""

    def step(self, step: int, steps: int) -> None:
        """Called after every step; `step` counts from 1 in each epoch of `steps` steps."""

    def epoch(self, record: EpochRecord) -> None:
        """Called after every epoch with its log record."""


class Silent:
    """An observer that shows nothing."""

    def started(self, recipe: Recipe, info: RunInfo, epochs_done: int) -> None:
        pass

    def step(self, step: int, steps: int) -> None:
        pass

    def epoch(self, record: EpochRecord) -> None:
        pass
