"""The example of every public name runs, in a directory that has one small run and its export."""

import doctest
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import elfnet

NAMES = [name for name in elfnet.__all__ if name != "__version__"]


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory, tiny_settings: dict[str, Any]) -> Path:
    """A directory with `runs/first`, a run of digits, and `digits.onnx`, its export."""
    folder = tmp_path_factory.mktemp("workplace")
    recipe = elfnet.load_recipe("digits/elf-ce-drw", {**tiny_settings, "train.epochs": 1})
    run = elfnet.train_recipe(recipe, folder / "runs" / "first")
    elfnet.calibrate_run(run)
    elfnet.export_run(run, folder / "digits.onnx", measure_memory=None)
    return folder


def _examples(name: str) -> Iterator[doctest.DocTest]:
    documented = getattr(elfnet, name)
    text = inspect.getdoc(documented) or ""
    yield doctest.DocTestParser().get_doctest(text, {}, name, None, None)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_example_runs(name: str, workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workplace)
    failures: list[str] = []
    (test,) = _examples(name)
    assert test.examples, f"the docstring of elfnet.{name} has no example"
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=failures.append)
    assert not failures, "".join(failures)


@pytest.mark.parametrize("name", NAMES)
def test_there_is_an_example_and_none_is_skipped(name: str) -> None:
    text = inspect.getdoc(getattr(elfnet, name)) or ""
    assert ">>>" in text
    assert "+SKIP" not in text
