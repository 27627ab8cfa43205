"""Tables of digits: filled, stopped and resumed, skipped, failed."""

import json
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from run_files import run_info

from elfnet.errors import RequestError, WorkError
from elfnet.recipe.load import load_recipe
from elfnet.recipe.schema import Recipe
from elfnet.reproduce import run as run_module
from elfnet.reproduce.cell import Cell
from elfnet.reproduce.plan import plan_table
from elfnet.reproduce.run import Outcome, SilentTableObserver, recipe_to_resume, reproduce_table
from elfnet.run.directory import RunDirectory

COLUMN = "cifar10-lt-100"
RUNS = ["ce", "elf-ce-drw", "tau-norm"]


def record(out: Path, row: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((out / "records" / COLUMN / row / "seed0.json").read_text())
    return content


class RecordingObserver(SilentTableObserver):
    """Keeps what it receives."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.times: list[float | None] = []

    def run_started(self, cell: Cell, number: int, runs: int) -> None:
        self.lines.append(f"{number}/{runs} {cell.row.name}")

    def remaining(self, seconds: float | None) -> None:
        self.times.append(seconds)

    def run_finished(self, cell: Cell, failure: str | None) -> None:
        self.lines.append(f"{cell.row.name}: {failure}")


@pytest.fixture
def no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("trained")

    monkeypatch.setattr(run_module, "train_recipe", refuse)


def test_a_row_is_run_with_the_row_it_starts_from(filled: tuple[Path, Outcome]) -> None:
    out, outcome = filled
    assert (outcome.runs, outcome.done, outcome.stopped, outcome.failed) == (3, 3, False, {})
    done = {cell["row"] for cell in outcome.table["cells"] if cell["n"]}
    assert done == set(RUNS)
    assert json.loads((out / "table.json").read_text()) == outcome.table
    assert RunDirectory(out / COLUMN / "tau-norm" / "seed0").recipe().refit.run == str(out / COLUMN / "ce" / "seed0")
    # Only the classifier differs from the network of the source run.
    assert record(out, "tau-norm")["refit"]["checkpoint_sha256"] == record(out, "ce")["checkpoint_sha256"]


def test_the_table_shows_the_runs_and_their_conditions(filled: tuple[Path, Outcome]) -> None:
    out, outcome = filled
    accuracy = 100 * record(out, "ce")["points"]["full"]["accuracy"]
    text = (out / "table.md").read_text()
    assert f"| CE | {accuracy:.1f} (1.000; n = 1) |  | 70.4\\* (1.000) |\n" in text
    assert "| BBN | not run |  | 79.8† (2.000) |" in text
    # Columns without runs are named in a note instead.
    assert "left out: CIFAR-10-LT, 50 (digits instead); CIFAR-10-LT, 10" in text
    assert f"3 of {len(outcome.table['cells'])} cells are run" in text
    assert "handwritten digits" in text
    assert "train.epochs=2" in text


@pytest.mark.usefixtures("no_training")
def test_finished_runs_are_skipped(filled: tuple[Path, Outcome], tiny: dict[str, Any]) -> None:
    out, outcome = filled
    again = reproduce_table(
        "table2", out, rows=RUNS, columns=[COLUMN], settings={**tiny, "train.threads": 2, "train.compile": "auto"}
    )
    assert again.table == outcome.table
    assert again.done == 3


@pytest.mark.usefixtures("no_training")
def test_records_are_enough_for_the_table(filled: tuple[Path, Outcome], tiny: dict[str, Any], tmp_path: Path) -> None:
    out, outcome = filled
    shutil.copytree(out / "records", tmp_path / "records")
    again = reproduce_table("table2", tmp_path, rows=RUNS, columns=[COLUMN], settings=tiny)
    assert again.table == outcome.table


def test_a_stopped_and_resumed_run_equals_an_uninterrupted_one(
    filled: tuple[Path, Outcome], tiny: dict[str, Any], tmp_path: Path
) -> None:
    def fill(out: Path, **options: Any) -> Outcome:
        return reproduce_table("table2", out, rows=["elf-ce-drw"], columns=[COLUMN], settings=tiny, **options)

    observer = RecordingObserver()
    answers = iter([False, True, True])
    stopped = fill(tmp_path / "here", stop=lambda: next(answers), observer=observer)
    assert (stopped.done, stopped.stopped) == (0, True)
    assert observer.lines == ["1/1 elf-ce-drw"]
    # Unknown before the first epoch; then the time of one more epoch like the first.
    assert observer.times[0] is None
    (seconds,) = (epoch.seconds for epoch in RunDirectory(tmp_path / "here" / COLUMN / "elf-ce-drw" / "seed0").log())
    assert observer.times[1:] == [seconds]
    (planned,) = plan_table("table2", tmp_path / "here", rows=["elf-ce-drw"], columns=[COLUMN], settings=tiny)
    assert (planned.state, planned.epochs_done, planned.epochs_left) == ("begun", 1, 1)
    # Without any time only the table is written.
    assert fill(tmp_path / "here", max_hours=0).stopped
    assert f"0 of {len(stopped.table['cells'])} cells are run" in (tmp_path / "here" / "table.md").read_text()
    # It resumes in another directory as well.
    shutil.move(tmp_path / "here", tmp_path / "there")
    assert fill(tmp_path / "there").done == 1
    resumed, uninterrupted = (record(out, "elf-ce-drw") for out in (tmp_path / "there", filled[0]))
    assert resumed["checkpoint_sha256"] == uninterrupted["checkpoint_sha256"]
    assert resumed["points"] == uninterrupted["points"]


def test_a_negative_time_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="--max-hours -1 must not be negative"):
        reproduce_table("table2", tmp_path, max_hours=-1)


def test_a_failed_run_stops_only_the_runs_that_start_from_it(
    tiny: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    def train(recipe: Recipe, out: Path, **_: Any) -> None:
        tried.append(out.parent.name)
        raise WorkError(f"cannot train {recipe.criterion.loss}")

    monkeypatch.setattr(run_module, "train_recipe", train)
    observer = RecordingObserver()
    outcome = reproduce_table(
        "table2", tmp_path / "out", rows=["crt", "focal"], columns=[COLUMN], settings=tiny, observer=observer
    )
    assert tried == ["focal", "ce"]
    assert list(outcome.failed.values()) == [
        "cannot train focal",
        "cannot train ce",
        f"it starts from {COLUMN}/ce/seed0, which failed",
    ]
    assert observer.lines[:2] == ["1/3 focal", "focal: cannot train focal"]
    assert (outcome.done, outcome.stopped) == (0, False)


def test_a_run_that_another_process_works_on_fails(
    tiny: dict[str, Any], tmp_path: Path, locked_elsewhere: Callable[[Path], AbstractContextManager[None]]
) -> None:
    with locked_elsewhere(tmp_path / COLUMN / "ce" / "seed0"):
        outcome = reproduce_table("table2", tmp_path, rows=["ce"], columns=[COLUMN], settings=tiny)
    assert "another process is working on" in outcome.failed[f"{COLUMN}/ce/seed0"]


def test_a_new_run_has_the_requested_recipe(tmp_path: Path) -> None:
    requested = load_recipe("imagenet-lt/ce", {"data.root": "images"})
    assert recipe_to_resume(RunDirectory(tmp_path / "run"), requested) == requested


def test_a_resumed_run_keeps_its_machine_and_uses_the_requested_paths(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    run.create(
        load_recipe("imagenet-lt/crt", {"data.root": "old", "refit.run": "old/ce", "train.threads": 2}), run_info()
    )
    requested = load_recipe("imagenet-lt/crt", {"data.root": "new", "refit.run": "new/ce", "train.threads": 4})
    recipe = recipe_to_resume(run, requested)
    assert (recipe.data.root, recipe.refit.run, recipe.train.threads) == ("new", "new/ce", 2)
    # Evaluation reads the data by the run's own recipe.
    assert run.recipe() == recipe
