"""Comparing recipes: which settings differ, and how many epochs of two trainings are the same.

Settings of the machine, paths and loggers are not compared: the experiment is the same without them.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from elfnet.losses.weighting import weights_in_force
from elfnet.methods.refit.build import is_second_stage
from elfnet.models.build import resolve_defaults
from elfnet.recipe.renamed import translate_stored
from elfnet.recipe.roles import settings_with_role
from elfnet.recipe.schema import Recipe, RefitRecipe
from elfnet.recipe.stages import total_epochs
from elfnet.train.prepare import schedule_of

NOT_COMPARED = settings_with_role("location", "machine", "tracking")
"""Settings that do not make another experiment."""

FILES = settings_with_role("file")
"""Settings of which only the name of the file is compared."""

AFTER_TRAINING = settings_with_role("after-training")
"""Settings that training does not read."""

CLASS_WEIGHTS = frozenset({"criterion.reweight", "train.drw_start"})
"""Settings that training reads only in epochs with class weights."""

REFIT = frozenset(f"refit.{name}" for name in RefitRecipe.model_fields)
"""Settings that the first stage of a run does not read."""

RecipeDict = Mapping[str, Mapping[str, Any]]
"""Settings by section and name, as in a record's `recipe`."""


def recipe_dict(recipe: Recipe) -> dict[str, dict[str, Any]]:
    """Return all settings of a recipe as plain JSON, with the backbone's defaults filled in."""
    resolved = recipe.model_copy(update={"model": resolve_defaults(recipe.model)})
    content: dict[str, dict[str, Any]] = resolved.model_dump(mode="json")
    return content


def recipe_diff(first: RecipeDict, second: RecipeDict) -> Iterator[tuple[str, Any, Any]]:
    """Yield (dotted name, value in first, value in second) of each setting that makes another experiment.

    A setting that is missing, because the recipe was stored before the setting existed, has its default value.
    """
    old = _flatten(first)
    for name, value in _flatten(second).items():
        if name not in NOT_COMPARED and old[name] != value:
            yield name, old[name], value


def recipe_hash(content: RecipeDict) -> str:
    """Return the sha256 of all compared settings, as hex digits."""
    compared = {name: value for name, value in _flatten(content).items() if name not in NOT_COMPARED}
    return hashlib.sha256(json.dumps(compared, sort_keys=True).encode()).hexdigest()


def relocate(stored: RecipeDict, requested: RecipeDict) -> dict[str, dict[str, Any]]:
    """Return the stored settings with the paths of the requested ones, as far as those are given."""
    names = settings_with_role("location", "file")
    section_and_name = (dotted.split(".", 1) for dotted in names)
    paths = {f"{section}.{name}": requested.get(section, {}).get(name) for section, name in section_and_name}
    return replace_settings(stored, {dotted: path for dotted, path in paths.items() if path})


def replace_settings(content: RecipeDict, settings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return a copy with other values for the settings given by dotted name."""
    copy = {section: dict(fields) for section, fields in content.items()}
    for dotted, value in settings.items():
        section, _, name = dotted.partition(".")
        copy[section][name] = value
    return copy


def shared_prefix_epochs(first: Recipe, second: Recipe) -> int:
    """Return how many epochs from the start two trainings have in common; all epochs of the first if nothing differs.

    Runs that differ only in their second stage, or in having one, share the whole first stage.

    Example:
        >>> from elfnet.recipe.load import load_recipe
        >>> ce, weighted, focal = (load_recipe(f"cifar10-lt/{name}") for name in ("ce", "ce-drw", "focal"))
        >>> shared_prefix_epochs(ce, weighted), shared_prefix_epochs(ce, ce), shared_prefix_epochs(ce, focal)
        (160, 200, 0)
    """
    different = {name for name, *_ in recipe_diff(_training_settings(first), _training_settings(second))}
    second_stage = different & REFIT if _has_first_stage(first) and _has_first_stage(second) else frozenset()
    if different - AFTER_TRAINING - CLASS_WEIGHTS - second_stage:
        return 0
    shared = first.train.epochs if second_stage else total_epochs(first)
    first_stage = range(first.train.epochs)
    return next((epoch for epoch in first_stage if _weights(first, epoch) != _weights(second, epoch)), shared)


def _has_first_stage(recipe: Recipe) -> bool:
    """Whether the run trains its features itself; a refit of another run does not."""
    return recipe.refit.method == "none" or is_second_stage(recipe)


def _training_settings(recipe: Recipe) -> RecipeDict:
    """Return the settings, with one notation for losses that are the same."""
    content = recipe_dict(recipe)
    if recipe.criterion.loss == "balanced-softmax":
        return replace_settings(content, {"criterion.loss": "logit-adjusted", "criterion.adjust_tau": 1.0})
    return content


def _weights(recipe: Recipe, epoch: int) -> str:
    return weights_in_force(epoch, reweight=recipe.criterion.reweight, start=schedule_of(recipe).drw_start)


def _flatten(content: RecipeDict) -> dict[str, Any]:
    """Return the settings by dotted name, with defaults for those that are missing."""
    settings: dict[str, Any] = {}
    content = translate_stored(content)
    for section, fields in recipe_dict(Recipe()).items():
        settings |= {f"{section}.{name}": value for name, value in fields.items()}
        settings |= {f"{section}.{name}": value for name, value in content.get(section, {}).items()}
    return settings | {name: Path(settings[name]).name for name in FILES}
