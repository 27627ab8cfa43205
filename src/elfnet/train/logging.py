"""Loggers and observers of a run: log.jsonl (one record per epoch), TensorBoard, Weights & Biases, progress.

TensorBoard and Weights & Biases need the extra `track`.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn

from elfnet.data.build import fewer_than_requested
from elfnet.errors import RequestError
from elfnet.extras import missing_package
from elfnet.progress import ProgressDisplay
from elfnet.recipe.schema import Recipe
from elfnet.recipe.stages import BALANCED, Stage, total_epochs
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

    def note(self, line: str) -> None:
        """Called with lines about the set-up of a new run, before it starts."""

    def started(self, recipe: Recipe, info: RunInfo, epochs_done: int) -> None:
        """Called before the first step of each network that is trained; `info` is the content of its run.json."""

    def step(self, step: int, steps: int) -> None:
        """Called after every step; `step` counts from 1 in each epoch of `steps` steps."""

    def epoch(self, record: EpochRecord) -> None:
        """Called after every epoch with its log record."""


class Silent:
    """An observer that shows nothing."""

    def note(self, line: str) -> None:
        pass

    def started(self, recipe: Recipe, info: RunInfo, epochs_done: int) -> None:
        pass

    def step(self, step: int, steps: int) -> None:
        pass

    def epoch(self, record: EpochRecord) -> None:
        pass


SECONDS_BETWEEN_LINES = 30.0
"""Where there is no terminal, a long epoch prints a line this often."""


def early_stop_note(stage: Stage, record: EpochRecord, best_epoch: int) -> str:
    """Say that the training ended after the epoch of this record, and what that means for its schedule.

    Args:
        best_epoch: 0-based.
    """
    train, cut = stage.recipe.train, ""
    if train.schedule != "steps":
        rate = f"{record.learning_rate:.2g} (train.lr={train.lr:g})"
        cut = f"; the {train.schedule} schedule is cut off at a learning rate of {rate}"
    return (
        f"stopped early after epoch {record.epoch + 1}/{stage.end}: no better calibration accuracy since epoch "
        f"{best_epoch + 1} (train.patience={train.patience}){cut}"
    )


def time_left(seconds: float) -> str:
    """Format a remaining time, such as `45 s left`, `8 min left` or `1.4 h left`."""
    if seconds < 100:
        return f"{seconds:.0f} s left"
    return f"{seconds / 60:.0f} min left" if seconds < 6000 else f"{seconds / 3600:.1f} h left"


def epoch_line(record: EpochRecord, epochs: int) -> str:
    """Return the summary of one epoch: loss, calibration accuracy, share of examples per exit, time."""
    parts = [f"epoch {record.epoch + 1}/{epochs}", f"loss {record.loss:.3f}"]
    if record.calibration_balanced_accuracy is not None:
        parts.append(f"calibration accuracy {100 * record.calibration_balanced_accuracy:.1f} %")
    if record.test_accuracy is not None:
        parts.append(f"test accuracy {100 * record.test_accuracy:.1f} %")
    if len(record.exit_share) > 1:
        parts.append(f"exit shares {' / '.join(f'{100 * share:.0f}' for share in record.exit_share)} %")
    if record.weights != "none":
        parts.append(f"{record.weights} weights")
    if record.stage == BALANCED:
        parts.append("balanced stage")
    parts.append(f"{record.seconds:.1f} s")
    return "  ".join(parts)


def network_number(recipe: Recipe) -> str:
    """Such as `network 2/4, ` with cross-fitting, whose final network is the last; empty for a single network."""
    folds, fold = recipe.data.cross_fitting, recipe.data.fold
    return f"network {fold or folds + 1}/{folds + 1}, " if folds else ""


def epochs_later(recipe: Recipe) -> float:
    """Epochs of the networks that cross-fitting trains after this one, in units of an epoch of this one.

    An epoch of the final network has all folds, one of the others all but one.
    """
    folds, fold = recipe.data.cross_fitting, recipe.data.fold
    return total_epochs(recipe) * (folds - fold + folds / (folds - 1)) if fold else 0.0


class Watch(ProgressDisplay):
    """Observer of a training run that shows its progress; a context manager.

    On a terminal it shows a progress bar and one line per epoch, elsewhere only lines: one per epoch, and in long
    epochs one every half minute.
    """

    def __init__(self) -> None:
        super().__init__(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[left]}")
        )
        self._epochs = self._done = self._first = 0
        self._later = 0.0
        self._network = ""
        self._began = self._said = 0.0
        self._bar = self._progress.add_task("training", total=None, left="")

    def say(self, line: str) -> None:
        """Print one line, above the progress bar if there is one."""
        self._said = time.monotonic()
        super().say(line)

    def note(self, line: str) -> None:
        """Print a line about the set-up of the run."""
        self.say(line)

    def started(self, recipe: Recipe, info: RunInfo, epochs_done: int) -> None:
        """Describe the run: network, data and machine; for a resumed run also the epochs that are done."""
        self._epochs = total_epochs(recipe)
        self._later, self._network = epochs_later(recipe), network_number(recipe)
        machine, data = info.machine, info.data
        how = [machine.device, machine.precision, f"{machine.threads} thread{'s' if machine.threads > 1 else ''}"]
        how += ["compiled"] if machine.compile else []
        network = "given network" if info.network is not None else recipe.model.backbone
        examples = "rows" if recipe.data.source == "features" else "images"
        self.say(
            f"{network} on {data.train:,} {examples} of {data.classes} classes "
            f"({max(data.class_counts)} to {min(data.class_counts)} per class); {', '.join(how)}"
        )
        if fewer := fewer_than_requested(recipe.data, data.class_counts):
            self.say(fewer)
        for origin in (info.weights, info.refit):
            if origin is not None and not epochs_done:
                self.say(origin.summary)
        if epochs_done:
            self.say(f"resuming after epoch {epochs_done}/{self._epochs}")
        self._progress.update(self._bar, total=self._epochs, completed=epochs_done)
        self._began, self._done, self._first = time.monotonic(), epochs_done, epochs_done

    def step(self, step: int, steps: int) -> None:
        """Show the current step and the time left: in the progress bar, or in a line if the last one is long ago."""
        where = f"{self._network}epoch {min(self._done + 1, self._epochs)}/{self._epochs}, step {step}/{steps}"
        if not self._progress.disable:
            self._progress.update(self._bar, description=where, left=self._left(step / steps))
        elif time.monotonic() - self._said >= SECONDS_BETWEEN_LINES and step < steps:
            self.say(f"{where}  {self._left(step / steps)}")

    def epoch(self, record: EpochRecord) -> None:
        """Advance the progress bar and print the line of a finished epoch."""
        self._finish_epoch(record)
        left = f"  {self._left()}" if self._done < self._epochs + self._later else ""
        self.say(self._network + epoch_line(record, self._epochs) + left)

    def _finish_epoch(self, record: EpochRecord) -> None:
        self._done = record.epoch + 1
        self._progress.update(self._bar, completed=self._done)

    def _left(self, part: float = 0.0) -> str:
        """The time left, by the pace since this process began; empty before there is one."""
        trained = self._done + part - self._first
        if trained <= 0:
            return ""
        left = self._epochs + self._later - self._done - part
        return time_left((time.monotonic() - self._began) / trained * left)
