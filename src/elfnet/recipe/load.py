"""Load, validate, list and save recipes.

A shipped recipe `DATA/METHOD` combines one data file and one method file of `shipped/`. A user's recipe file may build
on a shipped recipe or on another file with `extends = "DATA/METHOD"`. Overrides by dotted name come last.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import ValidationError

from elfnet import atomic
from elfnet.errors import RequestError, WorkError
from elfnet.parsing import parse_toml, read_toml
from elfnet.recipe.renamed import hint_by_meaning, new_name, translate_stored
from elfnet.recipe.schema import Recipe
from elfnet.registry import unknown_name

DEFAULT_METHOD = "elf-ce-drw"
"""Method of a recipe name without one, unless the data file names another: `elfnet train digits`."""
DEFAULT_RECIPE = f"digits/{DEFAULT_METHOD}"


def _shipped(kind: str) -> dict[str, str]:
    """TOML text of every shipped file of a kind ("data" or "method"), by name."""
    folder = resources.files("elfnet.recipe") / "shipped" / kind
    return {
        file.name.removesuffix(".toml"): file.read_text() for file in folder.iterdir() if file.name.endswith(".toml")
    }


@dataclass(frozen=True)
class AboutMethod:
    """Documentation of a shipped method.

    Attributes:
        summary: One line.
        paper: Where the method was published.
        changes: What it changes compared with plain training.
        follows: What it follows (its paper, its reference code), and where it deviates and why. Every row of a table
            states this; empty for other methods.
        tested: The test behind that statement.
    """

    summary: str
    paper: str
    changes: str
    follows: str = ""
    tested: str = ""


def shipped_methods() -> dict[str, AboutMethod]:
    """Documentation of every shipped method, by name in alphabetical order."""
    found = {}
    for name, text in sorted(_shipped("method").items()):
        about = parse_toml(text)["about"]
        found[name] = AboutMethod(_first_line(text), **about)
    return found


def _first_line(text: str) -> str:
    return text.splitlines()[0].lstrip("# ")


def recipe_names() -> list[str]:
    """Names of all shipped recipes, as `DATA/METHOD`.

    Example:
        >>> from elfnet import recipe_names
        >>> "cifar10-lt/elf-ldam-drw" in recipe_names()
        True
    """
    return [f"{data}/{method}" for data in sorted(_shipped("data")) for method in sorted(_shipped("method"))]


def recipe_summary(name: str) -> str:
    """One line about a shipped recipe: the first comment lines of its data file and its method file."""
    data, method = name.split("/")
    return "; ".join(_first_line(_shipped(kind)[part]) for kind, part in (("data", data), ("method", method)))


def _merge(base: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Merge nested settings; the values of `overrides` win."""
    merged = dict(base)
    for key, value in overrides.items():
        old = merged.get(key)
        merged[key] = _merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged


def _override(base: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Merge settings, and take those that are given off the list of automatic ones (`train.automatic`)."""
    merged = _merge(base, given)
    if isinstance(train := merged.get("train"), Mapping) and train.get("automatic"):
        left = [name for name in train["automatic"] if not _has(given, name)]
        merged["train"] = {**train, "automatic": left}
    return merged


def _has(settings: Mapping[str, Any], dotted: str) -> bool:
    section, _, name = dotted.partition(".")
    fields = settings.get(section)
    return isinstance(fields, Mapping) and name in fields


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return read_toml(path)
    except (OSError, UnicodeDecodeError) as error:
        raise WorkError(f"cannot read recipe {path}: {error}") from error
    except ValueError as error:
        raise RequestError(f"recipe {path} is not valid TOML: {error}") from error


def _read_settings(name: str, extended_by: tuple[str, ...] = ()) -> dict[str, Any]:
    """Read the settings of a shipped recipe or a file, merged with everything that it extends."""
    if name.endswith(".toml"):
        if name in extended_by:
            raise RequestError(
                f"recipe {name} extends itself; let it extend a shipped recipe, such as {DEFAULT_RECIPE}"
            )
        own = _read_toml(Path(name))
        if "extends" not in own:
            return own
        base = str(own.pop("extends"))
        # The path of an extended file is relative to the file that names it, not to the working directory.
        base = str(Path(name).parent / base) if base.endswith(".toml") else base
        return _override(_read_settings(base, (*extended_by, name)), own)
    data, _, method = name.partition("/")
    shipped_data, shipped_method = _shipped("data"), _shipped("method")
    if data not in shipped_data:
        raise _unknown_recipe(name)
    settings = parse_toml(shipped_data[data])
    default = str(settings.pop("method", DEFAULT_METHOD))
    if (method or default) not in shipped_method:
        raise _unknown_recipe(name)
    return _combine(settings, parse_toml(shipped_method[method or default]))


def _unknown_recipe(name: str) -> RequestError:
    """The error names the nearest recipe; the list of all would be too long for one line."""
    if Path(name).is_dir():
        return RequestError(
            f"{name} is a folder, not a recipe; for images in it: elfnet train folder --data.root {name}"
        )
    return unknown_name("recipe", name, recipe_names(), instead="'elfnet recipes ls' lists all")


def _combine(data: dict[str, Any], method: dict[str, Any]) -> dict[str, Any]:
    """Combine a data file with a method file; the method wins, except for `train.drw_start`.

    The method decides whether class weights are deferred. The epoch belongs to the schedule of the data file, and is
    dropped if the method does not defer.
    """
    method.pop("about")
    start = data.get("train", {}).pop("drw_start", None)
    both = _override(data, method)
    if start is not None and "drw_start" in method.get("train", {}):
        both["train"]["drw_start"] = start
    return both


def _refuse_unknown_settings(name: str, settings: Mapping[str, Any]) -> None:
    """Refuse unknown sections and fields, and name the nearest one that exists."""
    for section, fields in settings.items():
        if section not in Recipe.model_fields:
            raise unknown_name(f"section in recipe {name}:", section, list(Recipe.model_fields))
        kind = Recipe.model_fields[section].annotation
        known = list(getattr(kind, "model_fields", {}))
        if not isinstance(fields, Mapping):
            raise RequestError(f"recipe {name}: {section} is a section, not a value; write [{section}]")
        for field in fields:
            if field not in known:
                raise _unknown_setting(name, f"{section}.{field}", [f"{section}.{one}" for one in known])


def _unknown_setting(name: str, dotted: str, choices: list[str]) -> RequestError:
    """The error names the new name of a renamed setting, or what the user may have meant, or the nearest setting."""
    if (now := new_name(dotted)) is not None:
        return RequestError(f"recipe {name}: {dotted} is now called {now}; use the new name")
    if (meant := hint_by_meaning(dotted)) is not None:
        return RequestError(f"unknown setting in recipe {name}: {dotted}; {meant}")
    return unknown_name(f"setting in recipe {name}:", dotted, choices)


def validate_recipe(name: str, settings: Mapping[str, Any]) -> Recipe:
    """Check nested settings and return them as a recipe.

    Args:
        name: Name of the recipe, for messages.
        settings: Values by section and field.

    Raises:
        RequestError: For an unknown setting, a wrong value, or settings that contradict each other.
    """
    _refuse_unknown_settings(name, settings)
    try:
        return Recipe.model_validate(settings)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        reason = first["msg"].removeprefix("Value error, ")
        # Messages about a whole section already name their settings.
        value = f"={first['input']}" if place and not isinstance(first["input"], (Mapping, Recipe)) else ""
        where = f"{place}{value}: " if place else ""
        raise RequestError(f"recipe {name}: {where}{reason}") from error


def load_recipe(name: str = DEFAULT_RECIPE, overrides: Mapping[str, Any] | None = None) -> Recipe:
    """Load a recipe by name (`cifar10-lt/elf-ce-drw`) or path (`mine.toml`).

    Args:
        name: Name of a shipped recipe, or path of a .toml file.
        overrides: Values by dotted name, which replace those of the recipe.

    Raises:
        RequestError: If the recipe does not exist or a setting is wrong.
        WorkError: If the file cannot be read.

    Example:
        >>> from elfnet import load_recipe
        >>> load_recipe("cifar10-lt/elf-ce-drw", {"train.epochs": 40, "data.ratio": 50}).train.epochs
        40
    """
    return validate_recipe(name, _override(_read_settings(name), _nested(name, overrides)))


def load_stored_recipe(path: Path, overrides: Mapping[str, Any] | None = None) -> Recipe:
    """Load the recipe file of a run directory; setting names of earlier versions are translated.

    Args:
        overrides: Values by dotted name, which replace the stored ones.
    """
    stored = translate_stored(_read_toml(path))
    return validate_recipe(str(path), _override(stored, _nested(str(path), overrides)))


def _nested(name: str, overrides: Mapping[str, Any] | None) -> dict[str, dict[str, Any]]:
    """Overrides by section and field; `name` is used in messages only."""
    nested: dict[str, dict[str, Any]] = {}
    for dotted, value in (overrides or {}).items():
        section, _, field = dotted.partition(".")
        if not field:
            raise RequestError(f"override {dotted!r} must name a section and a setting, such as train.epochs")
        nested.setdefault(section, {})[field] = value
    _refuse_unknown_settings(name, nested)
    return nested


def recipe_text(recipe: Recipe) -> str:
    """All settings of a recipe as TOML text, which `load_recipe` reads."""
    return tomli_w.dumps(recipe.model_dump(mode="json"))


def save_recipe(recipe: Recipe, path: Path) -> None:
    """Write all settings of a recipe to a file, so that a run does not depend on defaults of later versions."""
    atomic.write_text(path, recipe_text(recipe))
