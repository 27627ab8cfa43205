"""Recipes: every setting of a run, read from shipped recipes, TOML files and overrides, typed and checked.

This package must not import torch.
"""

from typing import TYPE_CHECKING

from elfnet.lazy import lazy_names

if TYPE_CHECKING:
    from elfnet.recipe.load import load_recipe, recipe_names, recipe_text, save_recipe, shipped_methods
    from elfnet.recipe.schema import (
        CriterionRecipe,
        DataRecipe,
        ExitsRecipe,
        ModelRecipe,
        Recipe,
        RefitRecipe,
        TrackRecipe,
        TrainRecipe,
    )

_MODULES = {
    "CriterionRecipe": "elfnet.recipe.schema",
    "DataRecipe": "elfnet.recipe.schema",
    "ExitsRecipe": "elfnet.recipe.schema",
    "ModelRecipe": "elfnet.recipe.schema",
    "Recipe": "elfnet.recipe.schema",
    "RefitRecipe": "elfnet.recipe.schema",
    "TrackRecipe": "elfnet.recipe.schema",
    "TrainRecipe": "elfnet.recipe.schema",
    "load_recipe": "elfnet.recipe.load",
    "recipe_names": "elfnet.recipe.load",
    "recipe_text": "elfnet.recipe.load",
    "save_recipe": "elfnet.recipe.load",
    "shipped_methods": "elfnet.recipe.load",
}

__all__ = [
    "CriterionRecipe",
    "DataRecipe",
    "ExitsRecipe",
    "ModelRecipe",
    "Recipe",
    "RefitRecipe",
    "TrackRecipe",
    "TrainRecipe",
    "load_recipe",
    "recipe_names",
    "recipe_text",
    "save_recipe",
    "shipped_methods",
]

__getattr__ = lazy_names(__name__, _MODULES)


def __dir__() -> list[str]:
    return __all__
