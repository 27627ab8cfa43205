"""Writes reference/settings.md from the recipe schema and the shipped recipes.

Run: python docs/generate_settings.py
"""

from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from elfnet.recipe.load import DEFAULT_RECIPE, recipe_names, recipe_summary
from elfnet.recipe.schema import Recipe

PAGE = Path(__file__).parent / "reference" / "settings.md"
WORDS: dict[Any, str] = {bool: "true or false", int: "whole number", float: "number", str: "text", NoneType: "none"}
BOUNDS = {"gt": "above", "ge": "at least", "lt": "below", "le": "at most"}

INTRODUCTION = f"""# Settings and recipes

This page is generated from the schema by `docs/generate_settings.py`; do not edit it by hand.

Every setting is a flag (`--train.epochs 40`), a line in a recipe file (`epochs = 40` under `[train]`) and an override
in Python (`{{"train.epochs": 40}}`). All three are checked by the same schema. On the command line a list is written
with commas. The defaults below are the schema's; a shipped recipe changes some of them, and
`elfnet recipes show {DEFAULT_RECIPE}` prints what is in force.
"""


def settings_page() -> str:
    """The whole page as Markdown."""
    parts = [INTRODUCTION]
    for section, field in Recipe.model_fields.items():
        kind: Any = field.annotation
        rows = [_row(section, name, info) for name, info in kind.model_fields.items()]
        parts.append(f"## {section}\n\n{kind.__doc__}\n")
        parts.append(_table(("setting", "value", "default", "meaning"), rows))
    parts.append(_recipes())
    return "\n".join(parts)


def _table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    return "\n".join([_line(heads), _line(tuple("---" for _ in heads)), *map(_line, rows), ""])


def _line(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _row(section: str, name: str, info: FieldInfo) -> tuple[str, ...]:
    values = _values(info.annotation, info.metadata)
    return f"`{section}.{name}`", values, _written(info.default), info.description or ""


def _values(kind: Any, constraints: list[Any]) -> str:
    """What may be written, in words."""
    if get_origin(kind) is Annotated:
        kind, *inner = get_args(kind)
        return _values(kind, [*inner, *constraints])
    if get_origin(kind) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(kind))
    if get_origin(kind) is tuple:
        return f"list of: {_values(get_args(kind)[0], [])}"
    limits = [
        f"{word} {getattr(constraint, bound)}"
        for constraint in constraints
        for bound, word in BOUNDS.items()
        if getattr(constraint, bound, None) is not None
    ]
    return ", ".join([WORDS[kind], *limits])


def _written(default: Any) -> str:
    """A default as it would be written on the command line."""
    if isinstance(default, bool):
        text = str(default).lower()
    elif isinstance(default, tuple):
        text = ",".join(str(one) for one in default)
    else:
        text = str(default)
    return f"`{text}`" if text else "(empty)"


def _recipes() -> str:
    """Shipped recipes are DATA/METHOD: two short tables say as much as the list of all pairs."""
    data: dict[str, str] = {}
    method: dict[str, str] = {}
    for name in recipe_names():
        of_data, of_method = name.split("/")
        data[of_data], _, method[of_method] = recipe_summary(name).partition("; ")
    text = "## Shipped recipes\n\nA recipe is named `DATA/METHOD`: any of the first table with any of the second.\n"
    tables = [
        _table((head, "what"), [(f"`{name}`", what) for name, what in summaries.items()])
        for head, summaries in (("DATA", data), ("METHOD", method))
    ]
    return "\n".join([text, *tables])


if __name__ == "__main__":
    PAGE.write_text(settings_page(), encoding="utf-8")
