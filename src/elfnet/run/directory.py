"""A run directory: the paths of its files, and reading them.

```
RUN/  recipe.toml  run.json  log.jsonl  checkpoints/{last,best}.safetensors  tables/<split>.safetensors
      policy.json  times.json  metrics.json  report.html
```
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from elfnet import atomic
from elfnet.errors import RequestError, WorkError
from elfnet.file_lock import file_lock
from elfnet.recipe.load import load_stored_recipe, save_recipe
from elfnet.recipe.schema import Recipe
from elfnet.run.info import RunInfo
from elfnet.run.json_file import read_model, write_json
from elfnet.run.log import EpochRecord, read_log
from elfnet.run.results import Results


@dataclass(frozen=True)
class RunDirectory:
    """The files of a run. Creating this object reads nothing.

    Attributes:
        root: the directory.

    Example:
        >>> from elfnet import open_run
        >>> run = open_run("runs/first")
        >>> run.recipe().model.backbone
        'resnet8'
    """

    root: Path

    @property
    def recipe_file(self) -> Path:
        return self.root / "recipe.toml"

    @property
    def info_file(self) -> Path:
        return self.root / "run.json"

    @property
    def log_file(self) -> Path:
        return self.root / "log.jsonl"

    @property
    def policy_file(self) -> Path:
        return self.root / "policy.json"

    @property
    def times_file(self) -> Path:
        return self.root / "times.json"

    @property
    def metrics_file(self) -> Path:
        return self.root / "metrics.json"

    @property
    def report_file(self) -> Path:
        return self.root / "report.html"

    def checkpoint(self, which: str) -> Path:
        """The path of the checkpoint `last` or `best`."""
        if which not in ("last", "best"):
            raise RequestError(f"checkpoint {which!r} does not exist; choose from: last, best")
        return self.root / "checkpoints" / f"{which}.safetensors"

    def table(self, split: str, checkpoint: str = "last") -> Path:
        """The path of the exit table of a split and a checkpoint."""
        suffix = "" if checkpoint == "last" else f"-{checkpoint}"
        return self.root / "tables" / f"{split}{suffix}.safetensors"

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the run for writing (see `file_lock`), and finish a removal that was killed."""
        with file_lock(self.root):
            if self._removed.is_dir():
                shutil.rmtree(self._removed)
            yield

    @property
    def _removed(self) -> Path:
        """Where a run is moved to before it is removed."""
        root = self.root.resolve()
        return root.with_name(f".{root.name}.removed{atomic.PART}")

    def remove(self) -> None:
        """Remove the run; a kill leaves it as it was, or a hidden directory that the next `lock` removes."""
        try:
            self.root.resolve().rename(self._removed)
            shutil.rmtree(self._removed)
        except OSError as error:
            raise WorkError(
                f"cannot remove {self.root}: {error.strerror or error}; remove it yourself, or give another --out"
            ) from error

    def exists(self) -> bool:
        """Whether the directory holds a run, finished or not."""
        return self.recipe_file.is_file()

    def is_free(self) -> bool:
        """Whether a run can be created here: nothing is there but what a killed `create` may have left."""
        if not self.root.is_dir():
            return not self.root.exists()
        return all(
            path.name == self.info_file.name
            or any(atomic.is_leftover(path.name, file.name) for file in (self.info_file, self.recipe_file))
            for path in self.root.iterdir()
        )

    def recipe(self) -> Recipe:
        """The recipe that the run is trained with."""
        return load_stored_recipe(self.recipe_file)

    def info(self) -> RunInfo:
        """The content of run.json: versions, hardware, seeds, data fingerprint."""
        return read_model(self.info_file, RunInfo)

    def log(self) -> tuple[EpochRecord, ...]:
        """The records of log.jsonl, one per epoch (see `read_log`)."""
        return read_log(self.log_file)

    def results(self) -> Results:
        """The content of metrics.json: the operating points, measured on the test split."""
        return read_model(self.metrics_file, Results, way_out=f"run 'elfnet calibrate {self.root}' again")

    def save_results(self, results: Results) -> None:
        """Write metrics.json."""
        write_json(self.metrics_file, results.to_json())

    def create(self, recipe: Recipe, info: RunInfo) -> None:
        """Write run.json and recipe.toml."""
        write_json(self.info_file, info.to_json())
        # Written last: a directory with a recipe is a run.
        save_recipe(recipe, self.recipe_file)


def open_run(path: str | Path) -> RunDirectory:
    """Open an existing run.

    Raises:
        RequestError: the path is not a run directory.

    Example:
        >>> from elfnet import open_run
        >>> open_run("runs/first").root.name
        'first'
    """
    run = RunDirectory(Path(path))
    if not run.root.is_dir():
        raise RequestError(f"there is no run directory {path}; 'elfnet train --out {path}' creates one")
    if not run.exists():
        raise RequestError(f"{path} is not a run directory: it has no recipe.toml")
    return run
