"""Running the command in this process."""

import io
import json
from collections.abc import Callable
from contextlib import redirect_stdout
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
    # The epochs of the fixture `trained_run`, so that the graphs of its network serve here, too.
    save_recipe(load_recipe("digits/elf-ce-drw", {**tiny_settings, "train.epochs": 3}), path)
    return path


@pytest.fixture(scope="session")
def printed_results(tiny_recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `elfnet train --json` printed after a run that it trained, calibrated and reported."""
    out = tmp_path_factory.mktemp("runs") / "finished"
    with redirect_stdout(io.StringIO()) as printed:
        assert main(["train", str(tiny_recipe), "--out", str(out), "--json"]) == 0
    results: dict[str, Any] = json.loads(printed.getvalue())
    return results


@pytest.fixture(scope="session")
def finished(printed_results: dict[str, Any]) -> Path:
    """The directory of that run; do not write into it."""
    return Path(printed_results["run"])
