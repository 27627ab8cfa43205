"""A sweep's directory.

```
SWEEP/  sweep.json  recipes/<run>.toml  runs/<run>/  output/<run>.txt  table.md  table.json
```
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elfnet import atomic
from elfnet.checkpoint.run_directory import RunDirectory, read_json
from elfnet.errors import RequestError
from elfnet.recipe.load import recipe_text, save_recipe
from elfnet.sweep.grid import Cell


@dataclass(frozen=True)
class SweepDirectory:
    """Paths of a sweep."""

    root: Path

    def recipe_file(self, cell: Cell) -> Path:
        return self.root / "recipes" / f"{cell.name}.toml"

    def run(self, cell: Cell) -> RunDirectory:
        return RunDirectory(self.root / "runs" / cell.name)

    def output_file(self, cell: Cell) -> Path:
        """What the run's command printed."""
        return self.root / "output" / f"{cell.name}.txt"

    def is_done(self, cell: Cell) -> bool:
        """The figures on the test split are what a run writes after everything else that a sweep needs."""
        return self.run(cell).metrics_file.is_file()

    def open(self, over: Mapping[str, Sequence[str]], cells: Sequence[Cell]) -> None:
        """Begin this sweep here, or go on with it; refused where there is another one, or something else."""
        file = self.root / "sweep.json"
        asked: dict[str, Any] = {
            "over": {name: list(values) for name, values in over.items()},
            "recipes": {cell.name: recipe_text(cell.recipe) for cell in cells},
        }
        if file.is_file():
            if read_json(file) != json.loads(json.dumps(asked)):
                raise RequestError(f"{self.root} holds another sweep; repeat that one, or give another --out")
            return
        if self.root.exists() and (not self.root.is_dir() or any(self.root.iterdir())):
            raise RequestError(f"{self.root} exists and is not a sweep; give another --out")
        atomic.write_json(file, asked)

    def write_recipes(self, cells: Sequence[Cell]) -> None:
        for cell in cells:
            save_recipe(cell.recipe, self.recipe_file(cell))
