"""A table's directory.

```
OUT/  table.md  table.html  table.tex  table.json
      records/<column>/<row>/seed<k>.json      what is kept of a run; enough for the table
      <column>/<row>/seed<k>/                  the run itself
```
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elfnet.data.build import load_splits
from elfnet.errors import RequestError
from elfnet.recipe.schema import Recipe
from elfnet.reproduce.cell import Cell
from elfnet.reproduce.paper_table import PaperTable
from elfnet.reproduce.same_recipe import Content, content_of, first_difference
from elfnet.run.directory import RunDirectory, read_json

_SEED = re.compile(r"seed(0|[1-9]\d*)(\.json)?")


@dataclass(frozen=True)
class TableDirectory:
    """Paths of a table."""

    root: Path

    def run(self, cell: Cell) -> RunDirectory:
        return RunDirectory(self.root / cell.name)

    def record_file(self, cell: Cell) -> Path:
        return self.root / "records" / f"{cell.name}.json"

    def record(self, cell: Cell) -> dict[str, Any] | None:
        """What is kept of a finished run; None if there is none."""
        file = self.record_file(cell)
        return read_json(file) if file.is_file() else None

    def start_of(self, cell: Cell) -> str:
        """The run that a run starts from; empty if it starts from nothing."""
        if cell.row.starts_from is None:
            return ""
        return str(self.root / cell.column.name / cell.row.starts_from / f"seed{cell.seed}")

    def found(self, table: PaperTable) -> Iterator[Cell]:
        """Every run of this table that has been begun or finished here, whoever asked for it."""
        for column in table.columns:
            for row in table.rows:
                seeds = set()
                for folder in (self.root, self.root / "records"):
                    for entry in (folder / column.name / row.name).glob("seed*"):
                        match = _SEED.fullmatch(entry.name)
                        is_ours = entry.is_file() if folder != self.root else RunDirectory(entry).exists()
                        if match and is_ours:
                            seeds.add(int(match[1]))
                yield from (Cell(row, column, seed) for seed in sorted(seeds))

    def refuse_another_table(self, table: str, tier: str) -> None:
        """Refuse a directory whose table.json is of something else."""
        file = self.root / "table.json"
        if self.root.exists() and not self.root.is_dir():
            raise RequestError(f"{self.root} is not a directory; give another --out")
        if not file.is_file():
            return
        content = read_json(file)
        there = content.get("table"), content.get("tier")
        if there == (None, None):
            raise RequestError(f"{file} is not of a table of the paper; give another --out")
        if there != (table, tier):
            raise RequestError(
                f"{self.root} holds {there[0]} at tier {there[1]}, not {table} at tier {tier}; give another --out"
            )

    def refuse_another_recipe(self, cell: Cell, asked: Recipe) -> None:
        """Refuse a run that is there with another recipe, or on other data."""
        run, record, wanted = self.run(cell), self.record(cell), content_of(asked)
        if record is not None:
            _refuse(self.record_file(cell), record.get("recipe", {}), wanted)
        if not run.exists():
            return
        there = run.recipe()
        _refuse(run.root, content_of(there), wanted)
        # An unfinished run looks at its data itself when it goes on.
        if record is None or not _lies_elsewhere(there, asked):
            return
        if load_splits(asked.data).fingerprint != run.info()["data"]["fingerprint"]:
            raise RequestError(
                f"the data in {asked.data.root or asked.data.directory} is not what the run in {run.root} was "
                "trained on; give another --out"
            )


def _refuse(place: Path, there: Content, asked: Content) -> None:
    different = first_difference(there, asked)
    if different is not None:
        name, value, wanted = different
        raise RequestError(
            f"{place} is of another recipe: {name}={value}, not {wanted}; ask for the same, or give another --out"
        )


def _lies_elsewhere(there: Recipe, asked: Recipe) -> bool:
    """Whether the data is asked for in another place; naming none asks for where it was."""
    return any(
        wanted not in ("", had)
        for had, wanted in ((there.data.root, asked.data.root), (there.data.directory, asked.data.directory))
    )
