"""A run that was stopped, or killed, and gone on with ends bit for bit where an undisturbed one ends."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from elfnet.errors import RequestError, WorkError
from elfnet.recipe.load import save_recipe
from elfnet.recipe.schema import Recipe
from elfnet.run.checkpoint import load_checkpoint, tensors_sha256
from elfnet.run.directory import RunDirectory
from elfnet.train.run import train_recipe


def outcome(run: RunDirectory) -> tuple[str, str, list[dict[str, Any]]]:
    """Weights, momentum and log; wall time is the one thing that may differ."""
    last = load_checkpoint(run.checkpoint("last"))
    log = [{k: v for k, v in record.to_json().items() if k != "seconds"} for record in run.log()]
    return last.sha256, tensors_sha256(last.optimiser), log


def stopped_and_resumed(recipe: Recipe, out: Path, *, stops: tuple[int, ...]) -> RunDirectory:
    for number, stop in enumerate(stops):
        train_recipe(recipe, out, resume=number > 0, stop_after=lambda done, stop=stop: done >= stop)  # type: ignore[misc]
    return train_recipe(recipe, out, resume=True)


@pytest.mark.parametrize(
    ("method", "overrides"),
    [
        ("elf-ce-drw", {}),
        ("elf-ce-drw", {"exits__after_exit": "drop", "exits__train_threshold": "0.3"}),
        ("ldam-drw", {"train__channels_last": "off"}),
        # So little that the temperature rises from the first step on.
        ("distilled-exits", {"criterion__distil_confidence": 0.11}),
        pytest.param("elf-ce-drw", {"model__experts": 3, "exits__train_threshold": "0.3"}, marks=pytest.mark.slow),
        (
            "elf-ce-drw",
            {
                "model__experts": 2,
                "exits__after_exit": "drop",
                "exits__train_threshold": "0.3",
                "criterion__equilibrium": True,
            },
        ),
        (
            "elf-ce-drw",
            {
                "data__policy": "autoaugment",
                "data__cutout": 8,
                "data__random_erasing": 0.5,
                "train__mix": "cmo",
                "train__mix_probability": 0.5,
                "train__mix_off_epochs": 1,
            },
        ),
    ],
    ids=["mask", "drop", "plain-ldam", "distilled", "experts", "experts-drop-equilibrium", "augmented-and-mixed"],
)
def test_resumed_equals_uninterrupted(
    tiny: Callable[..., Recipe], tmp_path: Path, method: str, overrides: dict[str, Any]
) -> None:
    recipe = tiny(method, train__epochs=3, **overrides)
    whole = train_recipe(recipe, tmp_path / "whole")
    assert [record.weights for record in whole.log()] == ["none", "none", "effective"]
    # Before the switch to class weights, and exactly at it.
    parts = stopped_and_resumed(recipe, tmp_path / "parts", stops=(1, 2))
    assert outcome(parts) == outcome(whole)
    assert load_checkpoint(parts.checkpoint("best")).sha256 == load_checkpoint(whole.checkpoint("best")).sha256


@pytest.mark.slow
def test_resumed_equals_uninterrupted_with_everything_at_once(tiny: Callable[..., Recipe], tmp_path: Path) -> None:
    """One stop in each epoch of both stages."""
    settings: dict[str, Any] = {
        "train__epochs": 4,
        "train__optimizer": "adamw",
        "train__nesterov": False,
        "train__lr": 0.003,
        "train__schedule": "one-cycle",
        "train__warmup_epochs": 60,
        "train__ema_decay": 0.9,
        "train__mix": "cmo",
        "train__mix_probability": 0.5,
        "train__resize_start": 0.5,
        "train__prune": 0.5,
        "train__prune_patience": 1,
        "train__prune_floor": 2,
        "exits__train_threshold": "0.11",
        "exits__after_exit": "drop",
        "criterion__equilibrium": True,
        "model__experts": 2,
        "refit__epochs": 2,
        "refit__head": "cosine",
    }
    recipe = tiny("elf-strong-experts", **settings)
    whole = train_recipe(recipe, tmp_path / "whole")
    parts = stopped_and_resumed(recipe, tmp_path / "parts", stops=(1, 2, 3, 4, 5))
    assert min(record.examples or 0 for record in whole.log()[:4]) < whole.info().data.train
    assert outcome(parts) == outcome(whole)


@pytest.mark.slow
@pytest.mark.parametrize("left", ["mask", "drop"])
def test_resumed_equals_uninterrupted_compiled(tiny: Callable[..., Recipe], tmp_path: Path, left: str) -> None:
    recipe = tiny(train__compile="on", exits__after_exit=left, exits__train_threshold="0.3")
    whole = train_recipe(recipe, tmp_path / "whole")
    parts = stopped_and_resumed(recipe, tmp_path / "parts", stops=(2, 4))
    assert outcome(parts) == outcome(whole)


def test_another_seed_gives_another_run(tiny: Callable[..., Recipe], trained: RunDirectory, tmp_path: Path) -> None:
    other = train_recipe(tiny(train__seed=1, train__epochs=1), tmp_path / "other")
    assert other.log()[0].loss != trained.log()[0].loss


def test_killed_run_goes_on(tiny: Callable[..., Recipe], trained: RunDirectory, tmp_path: Path) -> None:
    recipe_file, out = tmp_path / "tiny.toml", tmp_path / "killed"
    save_recipe(tiny(), recipe_file)
    command = [sys.executable, "-m", "elfnet", "train", str(recipe_file), "--out", str(out), "--no-report"]
    # One thread, as in the run to compare with, whatever the machine has.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("epoch 2/"):
                process.send_signal(signal.SIGKILL)
                break
    assert 0 < load_checkpoint(RunDirectory(out).checkpoint("last")).epochs_done < 5
    # A kill may cut the last line of the log short.
    with RunDirectory(out).log_file.open("a") as log:
        log.write('{"epoch": 4, "lo')
    resumed = train_recipe(RunDirectory(out).recipe(), out, resume=True)
    assert outcome(resumed) == outcome(trained)


def test_finished_run_is_left_as_it_is(trained: RunDirectory) -> None:
    before = outcome(trained)
    train_recipe(trained.recipe(), trained.root, resume=True)
    assert outcome(trained) == before


def test_second_run_into_the_same_directory_is_refused(trained: RunDirectory) -> None:
    with pytest.raises(RequestError, match=r"holds a run already; .* continue it with: elfnet train --resume --out .*"):
        train_recipe(trained.recipe(), trained.root)


def test_resuming_with_another_recipe_is_refused(trained: RunDirectory, tiny: Callable[..., Recipe]) -> None:
    with pytest.raises(RequestError, match=r"has train.epochs=5, not 6"):
        train_recipe(tiny(train__epochs=6), trained.root, resume=True)


def test_resuming_nothing_is_refused(tiny: Callable[..., Recipe], tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"no run in .* to resume"):
        train_recipe(tiny(), tmp_path / "nothing", resume=True)


def test_a_directory_of_something_else_is_refused(tiny: Callable[..., Recipe], tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(RequestError, match="exists and is not a run"):
        train_recipe(tiny(), tmp_path, overwrite=True)
    assert (tmp_path / "thesis.txt").read_text() == "precious"


def test_loss_that_is_not_finite_stops_and_keeps_the_last_good_checkpoint(
    tiny: Callable[..., Recipe], tmp_path: Path
) -> None:
    run = train_recipe(tiny(train__epochs=2), tmp_path / "run", stop_after=lambda done: done == 1)
    before = load_checkpoint(run.checkpoint("last")).sha256
    save_recipe(tiny(train__epochs=2, train__lr=1e30), run.recipe_file)
    with pytest.raises(WorkError, match=r"not finite.*lower train.lr.*checkpoint after 1 epochs is intact"):
        train_recipe(run.recipe(), run.root, resume=True)
    assert load_checkpoint(run.checkpoint("last")).sha256 == before
    assert len(run.log()) == 1


def test_a_wrong_number_of_exit_weights_leaves_the_old_run(
    tiny: Callable[..., Recipe], trained: RunDirectory, copy_of: Callable[[RunDirectory], RunDirectory]
) -> None:
    old = copy_of(trained)
    before = outcome(old)
    with pytest.raises(RequestError, match="2 numbers for 4 exits"):
        train_recipe(tiny(criterion__exit_weights=(1.0, 0.5)), old.root, overwrite=True)
    assert outcome(old) == before
