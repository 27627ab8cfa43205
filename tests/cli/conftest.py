"""Running the command in this process."""

from collections.abc import Callable
from pathlib import Path

import pytest

from elfnet.cli.main import main
from elfnet.recipe.load import load_recipe, save_recipe

TINY = {
    "data.largest": 24,
    "data.ratio": 4,
    "data.calibration_per_class": 6,
    "data.test_per_class": 6,
    "model.backbone": "resnet8",
    "model.head_filters": 8,
    "train.epochs": 2,
    "train.compile": "off",
    "train.threads": 1,
}


@pytest.fixture
def elfnet(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Call `elfnet WORDS` and get exit code, standard output and standard error."""

    def call(*words: object) -> tuple[int, str, str]:
        code = main([str(word) for word in words])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture(scope="session")
def tiny_recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recipes") / "tiny.toml"
    save_recipe(load_recipe("digits/elf-ce-drw", TINY), path)
    return path


@pytest.fixture(scope="session")
def finished(tiny_recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that the command trained, calibrated and reported; do not write into it."""
    out = tmp_path_factory.mktemp("runs") / "finished"
    assert main(["train", str(tiny_recipe), "--out", str(out)]) == 0
    return out
