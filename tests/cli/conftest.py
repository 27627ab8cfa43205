"""Running the command in this process."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from elfnet.cli.main import main
from elfnet.recipe.load import load_recipe, save_recipe


@pytest.fixture
def elfnet(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Call `elfnet WORDS` and get exit code, standard output and standard error."""

    def call(*words: object) -> tuple[int, str, str]:
        code = main([str(word) for word in words])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture(scope="session")
def tiny_recipe(tiny_settings: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recipes") / "tiny.toml"
    save_recipe(load_recipe("digits/elf-ce-drw", {**tiny_settings, "train.epochs": 2}), path)
    return path


@pytest.fixture(scope="session")
def finished(tiny_recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that the command trained, calibrated and reported; do not write into it."""
    out = tmp_path_factory.mktemp("runs") / "finished"
    assert main(["train", str(tiny_recipe), "--out", str(out)]) == 0
    return out
