"""log.jsonl: one record an epoch, appended as the run goes; and the optional loggers beside it (extra `track`)."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from elfnet import atomic
from elfnet.errors import RequestError, WorkError
from elfnet.extras import missing_package
from elfnet.recipe.schema import Recipe
from elfnet.run.directory import RunDirectory


class Logger(Protocol):
    """Something that takes a record an epoch."""

    def log(self, record: dict[str, Any]) -> None: ...

    def close(self) -> None: ...


class JsonLines:
    """Appends to log.jsonl. On resume, records of epochs that will be run again are removed first."""

    def __init__(self, path: Path, *, keep_epochs: int) -> None:
        self._path = path
        kept = [record for record in _readable(path) if record.get("epoch", keep_epochs) < keep_epochs]
        atomic.write_text(path, "".join(json.dumps(record) + "\n" for record in kept))

    def log(self, record: dict[str, Any]) -> None:
        try:
            with self._path.open("a") as file:
                file.write(json.dumps(record, allow_nan=False) + "\n")
        except OSError as error:
            raise WorkError(
                f"cannot write {self._path}: {error.strerror}; make room and go on with --resume"
            ) from error

    def close(self) -> None:
        pass


def _readable(path: Path) -> list[dict[str, Any]]:
    """Records up to the first line that a kill cut short."""
    records: list[dict[str, Any]] = []
    for line in path.read_text().splitlines() if path.is_file() else []:
        try:
            records.append(json.loads(line))
        except ValueError:
            break
    return records


def _scalars(record: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """Numbers of a record, lists numbered from exit 1 on; what is undefined is left out."""
    for name, value in record.items():
        values = (
            [(f"{name}/{k + 1}", one) for k, one in enumerate(value)] if isinstance(value, list) else [(name, value)]
        )
        for key, one in values:
            if isinstance(one, (int, float)) and not isinstance(one, bool):
                yield key, float(one)


class TensorBoard:
    """Event files in the run directory; `tensorboard --logdir RUN` shows them."""

    def __init__(self, directory: Path, *, purge_epoch: int) -> None:
        try:
            from torch.utils.tensorboard.writer import SummaryWriter
        except ImportError:
            raise RequestError(missing_package("track.tensorboard=true", "tensorboard")) from None
        self._writer = SummaryWriter(str(directory), purge_step=purge_epoch)

    def log(self, record: dict[str, Any]) -> None:
        for name, value in _scalars(record):
            self._writer.add_scalar(name, value, record["epoch"])

    def close(self) -> None:
        self._writer.close()


class WeightsAndBiases:
    """Weights & Biases; WANDB_MODE=offline keeps it on this machine."""

    def __init__(self, directory: Path, *, project: str, name: str, recipe: dict[str, Any]) -> None:
        try:
            import wandb
        except ImportError:
            raise RequestError(missing_package("track.wandb=true", "wandb")) from None
        # The id is the run's own name, so that a resumed run goes on in the same place.
        self._run = wandb.init(project=project, name=name, id=name, resume="allow", dir=str(directory), config=recipe)

    def log(self, record: dict[str, Any]) -> None:
        self._run.log(dict(_scalars(record)), step=record["epoch"])

    def close(self) -> None:
        self._run.finish()


def open_loggers(run: RunDirectory, recipe: Recipe, epochs_done: int) -> list[Logger]:
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
    """Who watches a run: a progress bar, plain lines, or nobody."""

    def started(self, recipe: Recipe, info: dict[str, Any], epochs_done: int) -> None: ...

    def step(self, step: int, steps: int) -> None: ...

    def epoch(self, record: dict[str, Any]) -> None: ...


class Silent:
    """Nobody watches."""

    def started(self, recipe: Recipe, info: dict[str, Any], epochs_done: int) -> None:
        pass

    def step(self, step: int, steps: int) -> None:
        pass

    def epoch(self, record: dict[str, Any]) -> None:
        pass
