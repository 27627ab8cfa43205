"""A run directory: the paths of its files, reading them, and the lock that lets one process at a time write.

```
RUN/  recipe.toml  run.json  log.jsonl  checkpoints/{last,best,first-stage}.safetensors  tables/<split>.safetensors
      policy.json  times.json  metrics.json  report.html  folds/<number>/ (a run each, with cross-fitting)
```
"""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import get_ident
from typing import IO, Final

from elfnet import atomic
from elfnet.errors import RequestError, WorkError
from elfnet.recipe.load import load_stored_recipe, save_recipe
from elfnet.recipe.schema import Recipe
from elfnet.run.info import RunInfo
from elfnet.run.json_file import read_model, write_json
from elfnet.run.log import EpochRecord, read_log
from elfnet.run.results import Results

FIRST_STAGE: Final = "first-stage"
"""The checkpoint at the end of the first stage, before a second stage replaces the classifiers."""

CHECKPOINTS = ("last", "best", FIRST_STAGE)


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
        """The path of a checkpoint of `CHECKPOINTS`."""
        if which not in CHECKPOINTS:
            raise RequestError(f"checkpoint {which!r} does not exist; choose from: {', '.join(CHECKPOINTS)}")
        return self.root / "checkpoints" / f"{which}.safetensors"

    def table(self, split: str, checkpoint: str = "last") -> Path:
        """The path of the exit table of a split and a checkpoint."""
        suffix = "" if checkpoint == "last" else f"-{checkpoint}"
        return self.root / "tables" / f"{split}{suffix}.safetensors"

    def fold(self, number: int) -> "RunDirectory":
        """The run of a network of cross-fitting, which is trained without this fold; folds are counted from 1."""
        return RunDirectory(self.root / "folds" / str(number))

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
    if run.root.is_file():
        raise RequestError(f"{path} is a file; name the run directory, which 'elfnet train' makes")
    if not run.root.is_dir():
        raise RequestError(f"there is no run directory {path}; 'elfnet train --out {path}' creates one")
    if not run.exists():
        raise RequestError(
            f"{path} is not a run directory: it has no recipe.toml; name a directory that 'elfnet train' made"
        )
    return run


_HELD: dict[Path, int] = {}
"""Lock files that this process holds, with the thread that holds each. That thread may enter the lock again."""

NO_PERMISSION = (errno.EACCES, errno.EPERM, errno.EROFS)


@contextmanager
def file_lock(directory: Path) -> Iterator[None]:
    """Lock a directory, which need not exist yet.

    The lock is a hidden file next to the directory, so that the directory itself can be replaced under the lock. The
    operating system releases it when the process ends. A thread that holds the lock may enter it again.

    Raises:
        WorkError: another process or thread holds the lock, or the lock file cannot be written.
    """
    try:
        import fcntl  # noqa: F401
    except ImportError:  # no fcntl on this system, hence no lock
        yield
        return
    file = directory.resolve().with_name(f".{directory.resolve().name}.lock")
    if _HELD.get(file) == get_ident():
        yield
        return
    try:
        handle = _acquire(file, directory)
    except OSError as error:
        if error.errno in NO_PERMISSION and not os.access(directory, os.W_OK):
            yield  # a read-only directory needs no lock
            return
        raise WorkError(f"cannot write {file}: {error.strerror or error}") from error
    _HELD[file] = get_ident()
    try:
        yield
    finally:
        del _HELD[file]
        # Removed before it is released: a process that has opened it notices (`_is_current`) and opens a new file.
        file.unlink(missing_ok=True)
        handle.close()


def _acquire(file: Path, directory: Path) -> IO[str]:
    """Open and lock the lock file without waiting."""
    import fcntl

    file.parent.mkdir(parents=True, exist_ok=True)
    while True:
        handle = file.open("a")
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            handle.close()
            raise WorkError(
                f"another process is working on {directory}; wait until it has ended, or name another directory"
            ) from None
        if _is_current(file, handle):
            return handle
        handle.close()


def _is_current(file: Path, handle: IO[str]) -> bool:
    """Whether the opened file is still the one at this path; the previous holder may have removed it."""
    try:
        return os.path.samestat(file.stat(), os.fstat(handle.fileno()))
    except FileNotFoundError:
        return False
