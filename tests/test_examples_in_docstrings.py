"""The example of every public name runs. All examples share one small run and its export."""

import contextlib
import doctest
import inspect
from pathlib import Path

import pytest

import elfnet

NAMES = [name for name in elfnet.__all__ if name != "__version__"]


FIRST = ("train_recipe", "calibrate_run", "measure_run", "export_run")
"""Their examples run once, before all others: they make `runs/first` and `digits.onnx`, which those use."""


def _run_example(name: str) -> str:
    """Run the example of a name in the current directory; returns what failed."""
    text = inspect.getdoc(getattr(elfnet, name)) or ""
    example = doctest.DocTestParser().get_doctest(text, {}, name, None, None)
    assert example.examples, f"the docstring of elfnet.{name} has no example"
    failures: list[str] = []
    doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS).run(example, out=failures.append)
    return "".join(failures)


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A directory in which the examples of `FIRST` ran, and what failed in them."""
    folder = tmp_path_factory.mktemp("workplace")
    with contextlib.chdir(folder):
        return folder, {name: _run_example(name) for name in FIRST}


@pytest.mark.slow
@pytest.mark.usefixtures("without_drawing")
@pytest.mark.parametrize("name", NAMES)
def test_example_runs(name: str, workplace: tuple[Path, dict[str, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, failures = workplace
    monkeypatch.chdir(folder)
    failure = failures[name] if name in failures else _run_example(name)
    assert not failure, failure


def test_there_is_an_example_and_none_is_skipped() -> None:
    for name in NAMES:
        text = inspect.getdoc(getattr(elfnet, name)) or ""
        assert ">>>" in text, name
        assert "+SKIP" not in text, name
