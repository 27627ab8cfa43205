"""Two commands on one run directory: the second is refused with one line, and the first is not disturbed."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from threading import Thread

import pytest

from elfnet.calibrate.run import calibrate_run
from elfnet.cli.main import main
from elfnet.errors import WorkError
from elfnet.export.run import export_run
from elfnet.recipe.load import save_recipe
from elfnet.recipe.schema import Recipe
from elfnet.run.checkpoint import load_checkpoint
from elfnet.run.directory import RunDirectory
from elfnet.train.run import train_recipe


def _in_another_thread(action: Callable[[], object]) -> BaseException | None:
    """What the action raises in a thread of its own, which stands for another process."""
    raised: list[BaseException] = []

    def attempt() -> None:
        try:
            action()
        except BaseException as error:
            raised.append(error)

    thread = Thread(target=attempt)
    thread.start()
    thread.join()
    return raised[0] if raised else None


@pytest.mark.parametrize("what", ["train", "overwrite", "resume", "calibrate", "export"])
def test_nothing_else_works_on_a_run_in_training(
    tiny: Callable[..., Recipe], trained: RunDirectory, tmp_path: Path, what: str
) -> None:
    run = RunDirectory(tmp_path / "run")
    actions: dict[str, Callable[[], object]] = {
        "train": lambda: train_recipe(tiny(train__seed=1), run.root),
        "overwrite": lambda: train_recipe(tiny(train__seed=1), run.root, overwrite=True),
        "resume": lambda: train_recipe(tiny(), run.root, resume=True),
        "calibrate": lambda: calibrate_run(run),
        "export": lambda: export_run(run),
    }
    raised: list[BaseException | None] = []

    def meanwhile(epochs_done: int) -> bool:
        if epochs_done == 2:
            raised.append(_in_another_thread(actions[what]))
        return False

    train_recipe(tiny(), run.root, stop_after=meanwhile)
    assert isinstance(raised[0], WorkError)
    assert "another process is working on" in str(raised[0])
    # The first training ended as an undisturbed one.
    last = load_checkpoint(run.checkpoint("last"))
    assert last.sha256 == load_checkpoint(trained.checkpoint("last")).sha256


def test_the_command_line_says_it_in_one_line(
    tiny: Callable[..., Recipe],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    locked_elsewhere: Callable[[Path], AbstractContextManager[None]],
) -> None:
    recipe_file, out = tmp_path / "tiny.toml", tmp_path / "run"
    save_recipe(tiny(), recipe_file)
    with locked_elsewhere(out):
        code = main(["train", str(recipe_file), "--out", str(out), "--no-report"])
    assert code == 1
    assert "another process is working on" in capsys.readouterr().err
    assert not out.exists()
