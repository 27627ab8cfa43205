"""A run directory: what is where, and refusing what is not one.

```
RUN/  recipe.toml  run.json  log.jsonl  checkpoints/{last,best}.safetensors  tables/<split>.safetensors
      policy.json  metrics.json  report.html
```
"""

import json
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elfnet import atomic
from elfnet.errors import RequestError, WorkError
from elfnet.file_lock import file_lock
from elfnet.recipe.load import load_stored_recipe, save_recipe
from elfnet.recipe.schema import Recipe


@dataclass(frozen=True)
class RunDirectory:
    """Paths of a run. Nothing is read until asked for."""

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
    def metrics_file(self) -> Path:
        return self.root / "metrics.json"

    @property
    def report_file(self) -> Path:
        return self.root / "report.html"

    def checkpoint(self, which: str) -> Path:
        if which not in ("last", "best"):
            raise RequestError(f"checkpoint {which!r} does not exist; choose from: last, best")
        return self.root / "checkpoints" / f"{which}.safetensors"

    def table(self, split: str, checkpoint: str = "last") -> Path:
        suffix = "" if checkpoint == "last" else f"-{checkpoint}"
        return self.root / "tables" / f"{split}{suffix}.safetensors"

    def lock(self) -> AbstractContextManager[None]:
        """Hold the run while something in it is written; refused while another process does."""
        return file_lock(self.root)

    def exists(self) -> bool:
        return self.recipe_file.is_file()

    def recipe(self) -> Recipe:
        return load_stored_recipe(self.recipe_file)

    def info(self) -> dict[str, Any]:
        """Versions, hardware, seeds and data fingerprint of the run."""
        return read_json(self.info_file)

    def log(self) -> list[dict[str, Any]]:
        """One record an epoch, up to a line that a kill may have cut short."""
        records: list[dict[str, Any]] = []
        for line in self.log_file.read_text().splitlines() if self.log_file.is_file() else []:
            try:
                records.append(json.loads(line))
            except ValueError:
                break
        return records

    def create(self, recipe: Recipe, info: dict[str, Any]) -> None:
        atomic.write_json(self.info_file, info)
        # Written last: a directory with a recipe is a run.
        save_recipe(recipe, self.recipe_file)


def read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text())
    except OSError as error:
        raise WorkError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise WorkError(f"{path} is damaged ({error}); restore it from a copy, or train again") from error
    if not isinstance(content, dict):
        raise WorkError(f"{path} is damaged (not an object); restore it from a copy, or train again")
    return content


def open_run(path: str | Path) -> RunDirectory:
    """An existing run, or one line that says why it is not one."""
    run = RunDirectory(Path(path))
    if not run.root.is_dir():
        raise RequestError(f"there is no run directory {path}; 'elfnet train --out {path}' makes one")
    if not run.exists():
        raise RequestError(f"{path} is not a run directory: it has no recipe.toml")
    return run
