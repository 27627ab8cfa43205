"""Recipes by name or from a file, with overrides.

A shipped recipe is a data file and a method file, named `DATA/METHOD`: ratio, epochs and seed are settings, not copies.
A recipe file of one's own may start from a shipped one with `extends = "DATA/METHOD"`.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import ValidationError

from elfnet import atomic
from elfnet.errors import RequestError, WorkError
from elfnet.recipe.renamed import new_name, translate_stored
from elfnet.recipe.schema import Recipe
from elfnet.registry import unknown_name

DEFAULT_METHOD = "elf-ce-drw"
"""What a bare name of data means: `elfnet train folder` is folder/elf-ce-drw."""
DEFAULT_RECIPE = f"digits/{DEFAULT_METHOD}"

Layer = dict[str, dict[str, Any]]


def _shipped(kind: str) -> dict[str, str]:
    """Name and TOML text of every shipped file of a kind ("data" or "method")."""
    folder = resources.files("elfnet.recipe") / "shipped" / kind
    return {
        file.name.removesuffix(".toml"): file.read_text() for file in folder.iterdir() if file.name.endswith(".toml")
    }


@dataclass(frozen=True)
class AboutMethod:
    """What the documentation says of a shipped method: a line, where it comes from, and what it changes."""

    summary: str
    paper: str
    changes: str


def shipped_methods() -> dict[str, AboutMethod]:
    """Every shipped method by name, in alphabetical order."""
    found = {}
    for name, text in sorted(_shipped("method").items()):
        about = tomllib.loads(text)["about"]
        found[name] = AboutMethod(_first_line(text), about["paper"], about["changes"])
    return found


def _first_line(text: str) -> str:
    return text.splitlines()[0].lstrip("# ")


def recipe_names() -> list[str]:
    """Every shipped recipe."""
    return [f"{data}/{method}" for data in sorted(_shipped("data")) for method in sorted(_shipped("method"))]


def recipe_summary(name: str) -> str:
    """The first comment line of each of a recipe's two files."""
    data, method = name.split("/")
    return "; ".join(_first_line(_shipped(kind)[part]) for kind, part in (("data", data), ("method", method)))


def _merged(base: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in above.items():
        old = merged.get(key)
        merged[key] = _merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise WorkError(f"cannot read recipe {path}: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise RequestError(f"recipe {path} is not valid TOML: {error}") from error


def _layers(name: str, extended_by: tuple[str, ...] = ()) -> dict[str, Any]:
    if name.endswith(".toml"):
        if name in extended_by:
            raise RequestError(
                f"recipe {name} extends itself; let it extend a shipped recipe, such as {DEFAULT_RECIPE}"
            )
        own = _read_toml(Path(name))
        if "extends" not in own:
            return own
        base = str(own.pop("extends"))
        # A file that is extended is found beside the one that names it, wherever the command is run.
        base = str(Path(name).parent / base) if base.endswith(".toml") else base
        return _merged(_layers(base, (*extended_by, name)), own)
    data, _, method = name.partition("/")
    method = method or DEFAULT_METHOD
    shipped_data, shipped_method = _shipped("data"), _shipped("method")
    if data not in shipped_data or method not in shipped_method:
        raise _unknown_recipe(name)
    return _of_both(tomllib.loads(shipped_data[data]), tomllib.loads(shipped_method[method]))


def _unknown_recipe(name: str) -> RequestError:
    """The nearest recipe, and the two halves of a name: all pairs of them would fill the screen."""
    nearest = str(unknown_name("recipe", name, recipe_names())).partition(" choose from")[0]
    data, method = (", ".join(sorted(_shipped(kind))) for kind in ("data", "method"))
    return RequestError(f"{nearest} choose from: DATA/METHOD, with DATA one of {data}, and METHOD one of {method}")


def _of_both(data: dict[str, Any], method: dict[str, Any]) -> dict[str, Any]:
    """The method over the data, but for one thing: whether weights are deferred is the method's, until when the data's.

    The epoch belongs to the schedule that the data file writes down; a method without deferral does not read it.
    """
    method.pop("about")
    start = data.get("train", {}).pop("drw_start", None)
    both = _merged(data, method)
    if start is not None and "drw_start" in method.get("train", {}):
        both["train"]["drw_start"] = start
    return both


def _unknown_fields(name: str, settings: Mapping[str, Any]) -> None:
    """Refuse unknown sections and fields with the nearest that exists (pydantic would only say 'extra')."""
    for section, fields in settings.items():
        if section not in Recipe.model_fields:
            raise unknown_name(f"section in recipe {name}:", section, list(Recipe.model_fields))
        kind = Recipe.model_fields[section].annotation
        known = list(getattr(kind, "model_fields", {}))
        if not isinstance(fields, Mapping):
            raise RequestError(f"recipe {name}: {section} is a section, not a value; write [{section}]")
        for field in fields:
            if (now := new_name(f"{section}.{field}")) is not None:
                raise RequestError(f"recipe {name}: {section}.{field} is now called {now}; use the new name")
            if field not in known:
                choices = [f"{section}.{one}" for one in known]
                raise unknown_name(f"setting in recipe {name}:", f"{section}.{field}", choices)


def validate_recipe(name: str, settings: Mapping[str, Any]) -> Recipe:
    """A checked recipe from plain nested settings; `name` is used in messages only."""
    _unknown_fields(name, settings)
    try:
        return Recipe.model_validate(settings)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        reason = first["msg"].removeprefix("Value error, ")
        # Errors of a whole section already name their settings.
        value = f"={first['input']}" if place and not isinstance(first["input"], (Mapping, Recipe)) else ""
        where = f"{place}{value}: " if place else ""
        raise RequestError(f"recipe {name}: {where}{reason}") from error


def load_recipe(name: str = DEFAULT_RECIPE, overrides: Mapping[str, Any] | None = None) -> Recipe:
    """A recipe by name (`cifar10-lt/elf-ce-drw`) or path (`mine.toml`), with overrides by dotted name.

    Example:
        >>> load_recipe("cifar10-lt/elf-ce-drw", {"train.epochs": 40, "data.ratio": 50}).train.epochs
        40
    """
    return validate_recipe(name, _merged(_layers(name), _nested(name, overrides)))


def load_stored_recipe(path: Path, overrides: Mapping[str, Any] | None = None) -> Recipe:
    """The recipe that a run directory holds; names of earlier versions are translated.

    Args:
        overrides: by dotted name, as of `load_recipe`.
    """
    stored = translate_stored(_read_toml(path))
    return validate_recipe(str(path), _merged(stored, _nested(str(path), overrides)))


def _nested(name: str, overrides: Mapping[str, Any] | None) -> Layer:
    """Overrides by section; `name` is used in messages only."""
    nested: Layer = {}
    for dotted, value in (overrides or {}).items():
        section, _, field = dotted.partition(".")
        if not field:
            raise RequestError(f"override {dotted!r} must name a section and a setting, such as train.epochs")
        nested.setdefault(section, {})[field] = value
    _unknown_fields(name, nested)
    return nested


def recipe_text(recipe: Recipe) -> str:
    """Every setting, as TOML that `load_recipe` reads."""
    return tomli_w.dumps(recipe.model_dump(mode="json"))


def save_recipe(recipe: Recipe, path: Path) -> None:
    """Write every setting, so that the run does not depend on what later versions ship."""
    atomic.write_text(path, recipe_text(recipe))
