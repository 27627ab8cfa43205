"""Progress of training and of file prediction on standard error: bars on a terminal, plain lines elsewhere."""

import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from elfnet.cli.output import percent, shares
from elfnet.data.build import fewer_than_requested
from elfnet.recipe.schema import Recipe
from elfnet.recipe.stages import BALANCED, total_epochs
from elfnet.run.info import RunInfo
from elfnet.run.log import EpochRecord


def epoch_line(record: EpochRecord, epochs: int) -> str:
    """Return the summary of one epoch: loss, calibration accuracy, share of examples per exit, time."""
    parts = [f"epoch {record.epoch + 1}/{epochs}", f"loss {record.loss:.3f}"]
    if record.calibration_balanced_accuracy is not None:
        parts.append(f"calibration accuracy {percent(record.calibration_balanced_accuracy)} %")
    if record.test_accuracy is not None:
        parts.append(f"test accuracy {percent(record.test_accuracy)} %")
    if len(record.exit_share) > 1:
        parts.append(f"exit shares {shares(record.exit_share)} %")
    if record.weights != "none":
        parts.append(f"{record.weights} weights")
    if record.stage == BALANCED:
        parts.append("balanced stage")
    parts.append(f"{record.seconds:.1f} s")
    return "  ".join(parts)


class Watch:
    """Observer of a training run that shows its progress; a context manager.

    On a terminal it shows a progress bar and one line per epoch, elsewhere only the lines.
    """

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=self._console,
            disable=not sys.stderr.isatty(),
        )
        self._epochs = 0
        self._bar = self._progress.add_task("training", total=None)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def say(self, line: str) -> None:
        """Print one line, above the progress bar if there is one."""
        if self._progress.disable:
            sys.stderr.write(line + "\n")
            sys.stderr.flush()
        else:
            self._progress.console.print(line, markup=False)

    def started(self, recipe: Recipe, info: RunInfo, epochs_done: int) -> None:
        """Describe the run: network, data and machine; for a resumed run also the epochs that are done."""
        self._epochs = total_epochs(recipe)
        machine, data = info.machine, info.data
        how = [machine.device, machine.precision, f"{machine.threads} threads"]
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
        self._began = time.monotonic()

    def step(self, step: int, steps: int) -> None:
        """Show the number of the current step in the progress bar."""
        if not self._progress.disable:
            done = int(self._progress.tasks[0].completed)
            self._progress.update(self._bar, description=f"epoch {min(done + 1, self._epochs)}, step {step}/{steps}")

    def epoch(self, record: EpochRecord) -> None:
        """Advance the progress bar and print the line of a finished epoch."""
        self._progress.update(self._bar, completed=record.epoch + 1)
        self.say(epoch_line(record, self._epochs))


class FileProgress:
    """Progress of predictions for image files; a context manager.

    The total is unknown, because folders and lists are read while predictions are made.

    Args:
        shown: whether to show the bar; False if the predictions themselves go to the terminal.
    """

    def __init__(self, *, shown: bool) -> None:
        self._progress = Progress(
            TextColumn("{task.completed:,} images"),
            BarColumn(),
            TextColumn("{task.fields[failed]} not read"),
            TimeElapsedColumn(),
            console=Console(stderr=True, highlight=False),
            disable=not (shown and sys.stderr.isatty()),
            transient=True,
        )
        self._failed = 0
        self._bar = self._progress.add_task("", total=None, failed=0)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def step(self) -> None:
        """Count one more image."""
        self._progress.update(self._bar, advance=1, failed=self._failed)

    def complain(self, reason: str) -> None:
        """Print why a file was not read, on one line and without control characters."""
        self._failed += 1
        line = "".join(character if character.isprintable() else "?" for character in " ".join(reason.split()))
        if self._progress.disable:
            sys.stderr.write(f"elfnet: {line}\n")
            sys.stderr.flush()
        else:
            self._progress.console.print(f"elfnet: {line}", markup=False, soft_wrap=True)
