"""The directory of a table, and the trainings that its rows share.

```
OUT/  table.md  table.html  table.tex  table.json
      records/<column>/<row>/seed<k>.json      record of a finished run; the table is made from these
      <column>/<row>/seed<k>/                  the run
```

Rows whose trainings are the same, or start with the same epochs, share them. BranchyNet's training is that of all exits
without a rule, bit for bit; they differ in the confidence that is compared with thresholds. Balanced softmax is the
logit-adjusted loss at tau 1. CE+DRW equals CE until the class weights apply, after four fifths of the epochs. A second
stage (`refit.method=balanced`) changes nothing in the training before it. The row that is run second starts from the
checkpoint of the first.
"""

import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elfnet.data.build import load_splits
from elfnet.errors import RequestError
from elfnet.recipe.load import validate_recipe
from elfnet.recipe.schema import Recipe
from elfnet.recipe.stages import total_epochs
from elfnet.reproduce.cell import Cell
from elfnet.reproduce.paper_table import PaperTable
from elfnet.reproduce.recipe_diff import RecipeDict, recipe_dict, recipe_diff, replace_settings, shared_prefix_epochs
from elfnet.run.directory import RunDirectory
from elfnet.run.json_file import read_json

_SEED = re.compile(r"seed(0|[1-9]\d*)(\.json)?")


@dataclass(frozen=True)
class TableDirectory:
    """Paths and records of a table. Nothing is read until it is needed."""

    root: Path

    def run(self, cell: Cell) -> RunDirectory:
        return RunDirectory(self.root / cell.name)

    def record_file(self, cell: Cell) -> Path:
        return self.root / "records" / f"{cell.name}.json"

    def record(self, cell: Cell) -> dict[str, Any] | None:
        """Return the record of a finished run; None if there is none."""
        file = self.record_file(cell)
        return read_json(file) if file.is_file() else None

    def source_run(self, cell: Cell) -> str:
        """Return the directory of the run that a cell starts from; empty if it starts from none."""
        if cell.row.starts_from is None:
            return ""
        return str(self.root / cell.column.name / cell.row.starts_from / f"seed{cell.seed}")

    def existing_cells(self, table: PaperTable) -> Iterator[Cell]:
        """Yield every cell of the table that has a run or a record in this directory, requested or not."""
        for column in table.columns:
            for row in table.rows:
                seeds = set()
                for folder in (self.root, self.root / "records"):
                    for entry in (folder / column.name / row.name).glob("seed*"):
                        match = _SEED.fullmatch(entry.name)
                        exists = RunDirectory(entry).exists() if folder == self.root else entry.is_file()
                        if match and exists:
                            seeds.add(int(match[1]))
                yield from (Cell(row, column, seed) for seed in sorted(seeds))

    def check_same_table(self, table: str, tier: str) -> None:
        """Refuse a directory that holds something else.

        Raises:
            RequestError: it is a file, or its table.json is of another table or tier.
        """
        file = self.root / "table.json"
        if self.root.exists() and not self.root.is_dir():
            raise RequestError(f"{self.root} is not a directory; give another --out")
        if not file.is_file():
            return
        content = read_json(file)
        stored = content.get("table"), content.get("tier")
        if stored == (None, None):
            raise RequestError(f"{file} was not written by 'elfnet reproduce'; give another --out")
        if stored != (table, tier):
            raise RequestError(
                f"{self.root} holds {stored[0]} at tier {stored[1]}, not {table} at tier {tier}; give another --out"
            )

    def check_same_recipe(self, cell: Cell, requested: Recipe) -> None:
        """Refuse to continue a cell that exists with another recipe, or on other data.

        Raises:
            RequestError: a setting or the data differs.
        """
        run, record, settings = self.run(cell), self.record(cell), recipe_dict(requested)
        if record is not None:
            _check_same_settings(self.record_file(cell), record.get("recipe", {}), settings)
        if not run.exists():
            return
        stored = run.recipe()
        _check_same_settings(run.root, recipe_dict(stored), settings)
        # An unfinished run checks its data itself when it is resumed.
        if record is None or not _has_other_location(stored, requested):
            return
        if load_splits(requested.data).fingerprint != run.info().data.fingerprint:
            raise RequestError(
                f"the data in {requested.data.root or requested.data.directory} differs from the data that the run in "
                f"{run.root} was trained on; give another --out"
            )


def _check_same_settings(path: Path, stored: RecipeDict, requested: RecipeDict) -> None:
    difference = next(recipe_diff(stored, requested), None)
    if difference is not None:
        name, old, new = difference
        raise RequestError(
            f"{path} has another recipe: {name}={old}, not {new}; use the same value, or give another --out"
        )


def _has_other_location(stored: Recipe, requested: Recipe) -> bool:
    """Whether the data is requested from another place; an empty path means the stored one."""
    return any(
        new not in ("", old)
        for old, new in (
            (stored.data.root, requested.data.root),
            (stored.data.directory, requested.data.directory),
        )
    )


def branch_epochs(recipe: Recipe, others: Iterable[Recipe]) -> frozenset[int]:
    """Return after how many epochs other trainings start to differ from this one."""
    return frozenset(shared_prefix_epochs(recipe, other) for other in others) - {0, total_epochs(recipe)}


def save_prefix(run: RunDirectory, epochs: int) -> None:
    """Keep a copy of the state of a run after its first epochs, for rows that share them.

    Args:
        run: a run that has done exactly `epochs` epochs.
    """
    saved = _prefix(run, epochs)
    if not saved.is_dir():
        # Renamed when it is complete, so that an interrupted copy is never used.
        partial = saved.with_name(f"{saved.name}.half")
        _copy_training(run, partial)
        partial.rename(saved)


def start_from_shared(cell: Cell, recipe: Recipe, directory: TableDirectory, others: Iterable[Cell]) -> None:
    """Create the run of a cell from the longest training that it shares with another run; do nothing if there is none.

    Args:
        others: cells of the table that have a run.
    """
    run = directory.run(cell)
    if run.root.exists():
        return
    sources = [
        (epochs, other)
        for other in others
        if (other.column.name, other.seed, other.row.starts_from) == (cell.column.name, cell.seed, cell.row.starts_from)
        and directory.run(other).exists()
        and (epochs := shared_prefix_epochs(directory.run(other).recipe(), recipe))
        and _find_training(directory.run(other), epochs) is not None
    ]
    if sources:
        epochs, other = max(sources, key=lambda source: source[0])
        _create_run(run, recipe, directory.run(other), epochs, row=other.row.name)


def _create_run(run: RunDirectory, recipe: Recipe, source: RunDirectory, epochs: int, *, row: str) -> None:
    training, settings = _find_training(source, epochs), recipe_dict(source.recipe())
    assert training is not None
    # Renamed when it is complete: if this is interrupted, there is no run.
    partial = RunDirectory(run.root.with_suffix(".begun"))
    _copy_training(training, partial.root)
    # Settings that are not compared, such as threads and precision, stay those of the shared epochs.
    changes = {name: value for name, _, value in recipe_diff(settings, recipe_dict(recipe))}
    own = validate_recipe(str(partial.recipe_file), replace_settings(settings, changes))
    partial.create(own, source.info().model_copy(update={"training_of": row, "epochs_taken_over": epochs}))
    partial.root.rename(run.root)


def _find_training(source: RunDirectory, epochs: int) -> RunDirectory | None:
    """Return where the state after the first epochs of a run is: the finished run itself, or a saved prefix."""
    if epochs == total_epochs(source.recipe()):
        return source if len(source.log()) == epochs else None
    prefix = RunDirectory(_prefix(source, epochs))
    return prefix if prefix.root.is_dir() else None


def _prefix(run: RunDirectory, epochs: int) -> Path:
    return run.root / "beginnings" / str(epochs)


def _copy_training(source: RunDirectory, to: Path) -> None:
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(source.root / "checkpoints", to / "checkpoints")
    shutil.copyfile(source.log_file, RunDirectory(to).log_file)
