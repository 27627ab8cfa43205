"""The grid of a sweep: one run per combination of values, and the directory that holds the runs.

```
SWEEP/  sweep.json  recipes/<run>.toml  runs/<run>/  output/<run>.txt  table.md  table.json
```
"""

import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, get_origin

from elfnet import atomic
from elfnet.errors import RequestError
from elfnet.recipe.automatic import adopt
from elfnet.recipe.load import load_recipe, recipe_text, save_recipe, validate_recipe
from elfnet.recipe.schema import Recipe
from elfnet.registry import unknown_name
from elfnet.run.directory import RunDirectory
from elfnet.run.json_file import read_json


@dataclass(frozen=True)
class Cell:
    """One run of a sweep.

    Attributes:
        name: name of its run directory.
        values: values of the swept settings, as the user wrote them.
        recipe: the recipe with these values.
    """

    name: str
    values: Mapping[str, str]
    recipe: Recipe


def parse_over(texts: Sequence[str]) -> dict[str, list[str]]:
    """Parse the values of `--over`, in the order given.

    Raises:
        RequestError: a setting is unknown, given twice, a list, or has no values or the same value twice.

    Example:
        >>> parse_over(["exits.train_threshold=0.16,2/C", "train.seed=0"])
        {'exits.train_threshold': ['0.16', '2/C'], 'train.seed': ['0']}
    """
    over: dict[str, list[str]] = {}
    for text in texts:
        name, _, joined = text.partition("=")
        values = [value.strip() for value in joined.split(",") if value.strip()]
        if not values:
            raise RequestError(f"--over {text} must name a setting and its values, such as train.seed=0,1,2")
        if name in over:
            raise RequestError(f"--over {name} is given twice; write all its values in one --over")
        if len(set(values)) < len(values):
            raise RequestError(f"--over {text} has the same value twice; remove one")
        _check_setting(name)
        over[name] = values
    if not over:
        raise RequestError("a sweep needs at least one --over SETTING=VALUE,VALUE")
    return over


def expand_grid(recipe: str, settings: Mapping[str, Any], over: Mapping[str, Sequence[str]]) -> list[Cell]:
    """Return one cell per combination of values, the last setting changing fastest.

    Args:
        recipe: name or file of the recipe.
        settings: overrides of the recipe for all runs.
        over: values of each swept setting, as `parse_over` returns them.

    Raises:
        RequestError: a combination is not a valid recipe, a setting is both fixed and swept, or names collide.
    """
    both = [name for name in over if name in settings]
    if both:
        raise RequestError(f"--{both[0]} {settings[both[0]]} has no effect beside --over {both[0]}; remove one of them")
    cells = []
    for values in product(*over.values()):
        chosen = dict(zip(over, values, strict=True))
        cells.append(Cell(_run_name(chosen), chosen, load_recipe(recipe, {**settings, **chosen})))
    if len({cell.name for cell in cells}) < len(cells):
        raise RequestError("two runs of this sweep would have the same name; write their values so that they differ")
    return cells


def resolve_automatic(
    cells: Sequence[Cell], sweep: "SweepDirectory", *, on_note: Callable[[str], None] | None = None
) -> list[Cell]:
    """Fill in automatic settings once for the whole sweep, so that runs differ in the swept settings only.

    Settings that are chosen from timed steps would differ from run to run otherwise. A sweep that exists keeps the
    settings that it has.

    Args:
        on_note: called with each line about the data, the choices and the expected time of a run.
    """
    if not any(cell.recipe.train.automatic for cell in cells):
        return list(cells)
    stored = read_json(sweep.stored_file)["recipes"] if sweep.stored_file.is_file() else {}
    if cells[0].name in stored:
        found = {cell.name: stored.get(cell.name, stored[cells[0].name]) for cell in cells}
        return [
            replace(cell, recipe=adopt(cell.recipe, validate_recipe(cell.name, tomllib.loads(found[cell.name]))))
            for cell in cells
        ]
    from elfnet.train.automatic import set_up  # torch

    ready = set_up(cells[0].recipe)
    if on_note is not None:
        for line in ready.notes:
            on_note(line)
    return [replace(cell, recipe=adopt(cell.recipe, ready.recipe)) for cell in cells]


def _check_setting(dotted: str) -> None:
    known = {
        f"{section}.{name}": info
        for section, field in Recipe.model_fields.items()
        for name, info in getattr(field.annotation, "model_fields").items()  # noqa: B009 (unknown to mypy on a type)
    }
    if dotted not in known:
        raise unknown_name("setting", dotted, sorted(known), instead="'elfnet recipes show RECIPE' lists all")
    if get_origin(known[dotted].annotation) is tuple:
        raise RequestError(
            f"--over {dotted} is a list, and commas separate the values of a sweep; sweep another setting"
        )


def _run_name(values: Mapping[str, str]) -> str:
    """Return a name such as `train_threshold=0.16,seed=1`, with unusual characters replaced."""
    parts = (f"{dotted.partition('.')[2]}={value}" for dotted, value in values.items())
    return "".join(letter if letter.isalnum() or letter in "=,._-" else "_" for letter in ",".join(parts))


@dataclass(frozen=True)
class SweepDirectory:
    """Paths of a sweep."""

    root: Path

    @property
    def output_directory(self) -> Path:
        """Where the output of the runs' commands is stored."""
        return self.root / "output"

    @property
    def stored_file(self) -> Path:
        """The grid and all recipes of the sweep."""
        return self.root / "sweep.json"

    def recipe_file(self, cell: Cell) -> Path:
        return self.root / "recipes" / f"{cell.name}.toml"

    def run(self, cell: Cell) -> RunDirectory:
        return RunDirectory(self.root / "runs" / cell.name)

    def output_file(self, cell: Cell) -> Path:
        """Output of the run's command."""
        return self.output_directory / f"{cell.name}.txt"

    def is_done(self, cell: Cell) -> bool:
        """Return whether the run has metrics, which are written after everything else that a sweep needs."""
        return self.run(cell).metrics_file.is_file()

    def open(self, over: Mapping[str, Sequence[str]], cells: Sequence[Cell]) -> None:
        """Create the sweep here, or check that this directory contains the same sweep.

        Raises:
            RequestError: the directory contains another sweep or other files.
        """
        file = self.stored_file
        content: dict[str, Any] = {
            "over": {name: list(values) for name, values in over.items()},
            "recipes": {cell.name: recipe_text(cell.recipe) for cell in cells},
        }
        if file.is_file():
            if read_json(file) != json.loads(json.dumps(content)):
                raise RequestError(f"{self.root} contains another sweep; repeat that one, or give another --out")
            return
        if self.root.exists() and (not self.root.is_dir() or any(self.root.iterdir())):
            raise RequestError(f"{self.root} exists and is not a sweep; give another --out")
        atomic.write_json(file, content)

    def write_recipes(self, cells: Sequence[Cell]) -> None:
        """Write one recipe file per cell."""
        for cell in cells:
            save_recipe(cell.recipe, self.recipe_file(cell))
