"""Whether two recipes are the same experiment, whatever machine runs it and wherever its files lie."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from elfnet.models.build import resolve_defaults
from elfnet.recipe.renamed import translate_stored
from elfnet.recipe.schema import Recipe

MACHINE = frozenset(
    {"train.threads", "train.device", "train.precision", "train.compile", "train.channels_last", "data.workers"}
)
"""How a run is computed."""

PLACES = frozenset({"data.directory", "data.root", "data.cache", "refit.run"})
"""Where files lie."""

BESIDE = MACHINE | PLACES | {"track.tensorboard", "track.wandb", "track.wandb_project"}
"""What is no part of the experiment."""

Content = Mapping[str, Mapping[str, Any]]


def content_of(recipe: Recipe) -> dict[str, dict[str, Any]]:
    """Every setting as plain JSON, by section; what is left to the backbone is written out."""
    written = recipe.model_copy(update={"model": resolve_defaults(recipe.model)})
    content: dict[str, dict[str, Any]] = written.model_dump(mode="json")
    return content


def first_difference(there: Content, asked: Content) -> tuple[str, Any, Any] | None:
    """(setting, its value there, its value asked) of the first setting that makes it another experiment."""
    return next(differences(there, asked), None)


def differences(there: Content, asked: Content) -> Iterator[tuple[str, Any, Any]]:
    """All of them. A setting that one does not have, being older than it, has its default there."""
    have = _settings(there)
    for name, value in _settings(asked).items():
        if name not in BESIDE and have[name] != value:
            yield name, have[name], value


def recipe_hash(content: Content) -> str:
    """sha256 of everything that makes the experiment, as hex digits."""
    kept = {name: value for name, value in _settings(content).items() if name not in BESIDE}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()


def without_places(content: Content) -> dict[str, dict[str, Any]]:
    """For a file that others read: where things lay says nothing about the result."""
    return changed(content, dict.fromkeys(PLACES, ""))


def moved(there: Content, asked: Content) -> dict[str, dict[str, Any]]:
    """What is there, with the places of what is asked for, where it names any."""
    wanted = _settings(asked)
    return changed(there, {name: wanted[name] for name in PLACES if wanted[name]})


def changed(content: Content, changes: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """With other values for settings given by dotted name."""
    copy = {section: dict(fields) for section, fields in content.items()}
    for dotted, value in changes.items():
        section, _, name = dotted.partition(".")
        copy[section][name] = value
    return copy


def _settings(content: Content) -> dict[str, Any]:
    """By dotted name; defaults where nothing is given."""
    settings: dict[str, Any] = {}
    content = translate_stored(content)
    for section, fields in content_of(Recipe()).items():
        settings |= {f"{section}.{name}": value for name, value in fields.items()}
        settings |= {f"{section}.{name}": value for name, value in content.get(section, {}).items()}
    return settings
