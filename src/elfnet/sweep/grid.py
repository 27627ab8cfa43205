"""The grid of a sweep: which settings take which values, and the run of each combination."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, get_origin

from elfnet.errors import RequestError
from elfnet.recipe.load import load_recipe
from elfnet.recipe.schema import Recipe
from elfnet.registry import unknown_name


@dataclass(frozen=True)
class Cell:
    """One run of a sweep.

    Attributes:
        name: of its run directory.
        values: of the settings that are swept, as written.
    """

    name: str
    values: Mapping[str, str]
    recipe: Recipe


def parse_over(texts: Sequence[str]) -> dict[str, list[str]]:
    """`["train.seed=0,1"]` to `{"train.seed": ["0", "1"]}`, in the order given.

    Example:
        >>> parse_over(["exits.train_threshold=0.16,2/C", "train.seed=0"])
        {'exits.train_threshold': ['0.16', '2/C'], 'train.seed': ['0']}
    """
    over: dict[str, list[str]] = {}
    for text in texts:
        name, _, values = text.partition("=")
        found = [value.strip() for value in values.split(",") if value.strip()]
        if not found:
            raise RequestError(f"--over {text} must name a setting and its values, such as train.seed=0,1,2")
        if name in over:
            raise RequestError(f"--over {name} is given twice; write all its values in one")
        if len(set(found)) < len(found):
            raise RequestError(f"--over {text} has a value twice; leave one out")
        _refuse_setting(name)
        over[name] = found
    if not over:
        raise RequestError("a sweep needs at least one --over SETTING=VALUE,VALUE")
    return over


def cells_of(recipe: str, settings: Mapping[str, Any], over: Mapping[str, Sequence[str]]) -> list[Cell]:
    """Every combination, the last setting changing fastest; all are checked before any is run."""
    both = [name for name in over if name in settings]
    if both:
        raise RequestError(f"--{both[0]} {settings[both[0]]} has no effect beside --over {both[0]}; leave one out")
    cells = []
    for values in product(*over.values()):
        chosen = dict(zip(over, values, strict=True))
        cells.append(Cell(_name(chosen), chosen, load_recipe(recipe, {**settings, **chosen})))
    if len({cell.name for cell in cells}) < len(cells):
        raise RequestError("two runs of this sweep would have the same name; write their values so that they differ")
    return cells


def _refuse_setting(dotted: str) -> None:
    known = {
        f"{section}.{name}": info
        for section, field in Recipe.model_fields.items()
        for name, info in getattr(field.annotation, "model_fields").items()  # noqa: B009 (unknown to mypy on a type)
    }
    if dotted not in known:
        raise unknown_name("setting", dotted, sorted(known))
    if get_origin(known[dotted].annotation) is tuple:
        raise RequestError(f"{dotted} is a list, and values of a sweep are divided by commas; sweep another setting")


def _name(values: Mapping[str, str]) -> str:
    """`train_threshold=0.16,seed=1`, without what a file system may not like."""
    parts = (f"{dotted.partition('.')[2]}={value}" for dotted, value in values.items())
    return "".join(letter if letter.isalnum() or letter in "=,._-" else "_" for letter in ",".join(parts))
