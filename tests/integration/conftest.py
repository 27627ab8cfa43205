"""Runs that take seconds: a hundred digits, ResNet-8, five epochs, class weights in the last."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from elfnet.recipe.load import load_recipe
from elfnet.recipe.schema import Recipe
from elfnet.run.directory import RunDirectory
from elfnet.train.run import train_recipe


@pytest.fixture(scope="session")
def tiny(tiny_settings: dict[str, Any]) -> Callable[..., Recipe]:
    """A tiny recipe of a method, with overrides (dots written as double underscores)."""

    def build(method: str = "elf-ce-drw", **overrides: Any) -> Recipe:
        dotted = {name.replace("__", "."): value for name, value in overrides.items()}
        return load_recipe(f"digits/{method}", {**tiny_settings, **dotted})

    return build


@pytest.fixture(scope="session")
def trained(tiny: Callable[..., Recipe], tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """One finished tiny run; do not write into it."""
    return train_recipe(tiny(), tmp_path_factory.mktemp("runs") / "trained")


@pytest.fixture
def copy_of(tmp_path: Path) -> Callable[[RunDirectory], RunDirectory]:
    """A copy of a run that a test may damage."""
    import shutil

    def copy(run: RunDirectory) -> RunDirectory:
        shutil.copytree(run.root, tmp_path / "copy")
        return RunDirectory(tmp_path / "copy")

    return copy
