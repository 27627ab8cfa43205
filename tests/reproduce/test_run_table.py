"""Whole tables of digits: filled, stopped and gone on with, skipped, refused."""

import json
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from elfnet.errors import RequestError, WorkError
from elfnet.recipe.schema import Recipe
from elfnet.reproduce import run_cell
from elfnet.reproduce.cell import Cell
from elfnet.reproduce.run_table import Outcome, planned_steps, reproduce_table
from elfnet.reproduce.watcher import Nobody
from elfnet.run.directory import RunDirectory

COLUMN = "cifar10-lt-100"
RUNS = ["ce", "elf-ce-drw", "tau-norm"]


def record(out: Path, row: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((out / "records" / COLUMN / row / "seed0.json").read_text())
    return content


class Told(Nobody):
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.times: list[float | None] = []

    def begins(self, cell: Cell, number: int, runs: int) -> None:
        self.lines.append(f"{number}/{runs} {cell.row.name}")

    def left(self, seconds: float | None) -> None:
        self.times.append(seconds)

    def ends(self, cell: Cell, failure: str | None) -> None:
        self.lines.append(f"{cell.row.name}: {failure}")


def no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("trained")

    monkeypatch.setattr(run_cell, "train_recipe", refuse)


def test_a_row_brings_the_row_it_starts_from(filled: tuple[Path, Outcome]) -> None:
    out, outcome = filled
    assert (outcome.runs, outcome.done, outcome.stopped, outcome.failed) == (3, 3, False, {})
    done = {cell["row"] for cell in outcome.table["cells"] if cell["n"]}
    assert done == set(RUNS)
    assert json.loads((out / "table.json").read_text()) == outcome.table
    assert RunDirectory(out / COLUMN / "tau-norm" / "seed0").recipe().refit.run == str(out / COLUMN / "ce" / "seed0")
    # Its network is that of the run it started from, but for the classifier.
    assert record(out, "tau-norm")["refit"]["checkpoint_sha256"] == record(out, "ce")["checkpoint_sha256"]


def test_records_say_how_they_were_made(filled: tuple[Path, Outcome]) -> None:
    out, _ = filled
    found = record(out, "elf-ce-drw")
    run = RunDirectory(out / COLUMN / "elf-ce-drw" / "seed0")
    metrics = json.loads(run.metrics_file.read_text())
    assert (found["row"], found["column"], found["seed"], found["tier"]) == ("elf-ce-drw", COLUMN, 0, "smoke")
    assert found["epochs"] == len(run.log()) == 2
    assert found["points"]["full"]["accuracy"] == metrics["points"]["full"]["accuracy"]
    assert {"full", "accurate", "economic", "within-1", "s=0.9"} <= set(found["points"])
    assert found["checkpoint_sha256"] == metrics["checkpoint_sha256"]
    assert found["training"]["before_weights"]["epoch"] == 0
    assert found["training"]["last"]["weights"] == "effective"
    assert len(found["recipe_sha256"]) == 64
    assert {"versions", "hardware", "machine", "seconds_per_epoch"} <= set(found)
    # Nothing of where it lay.
    assert str(out) not in json.dumps([record(out, row) for row in RUNS])


def test_the_table_shows_the_run_and_says_what_it_is(filled: tuple[Path, Outcome]) -> None:
    out, _ = filled
    accuracy = 100 * record(out, "ce")["points"]["full"]["accuracy"]
    text = (out / "table.md").read_text()
    assert f"| CE | {accuracy:.1f} (1.000; n = 1) | 70.4\\* (1.000) |\n" in text
    assert "| BBN | not run | 79.8† (2.000) |" in text
    # Columns without a run would only say so; they are named instead.
    assert "left out: CIFAR-10-LT, 50 (digits instead); CIFAR-10-LT, 10" in text
    assert "3 of 222 cells are run" in text
    assert "handwritten digits" in text
    assert "train.epochs=2" in text


def test_what_is_done_is_skipped(
    filled: tuple[Path, Outcome], tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    out, outcome = filled
    no_training(monkeypatch)
    again = reproduce_table(
        "table2", out, rows=RUNS, columns=[COLUMN], settings={**tiny, "train.threads": 2, "train.compile": "auto"}
    )
    assert again.table == outcome.table
    assert again.done == 3
    states = planned_steps("table2", out, rows=[*RUNS, "crt"], columns=[COLUMN], settings=tiny)
    assert [(step.cell.row.name, step.state, step.epochs_left) for step in states] == [
        ("ce", "done", 0),
        ("elf-ce-drw", "done", 0),
        ("crt", "to do", 2),
        ("tau-norm", "done", 0),
    ]


def test_records_alone_are_enough_until_a_run_is_needed(
    filled: tuple[Path, Outcome], tiny: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, outcome = filled
    no_training(monkeypatch)
    shutil.copytree(out / "records", tmp_path / "records")
    again = reproduce_table("table2", tmp_path, rows=RUNS, columns=[COLUMN], settings=tiny)
    assert again.table == outcome.table
    steps = planned_steps("table2", tmp_path, rows=["crt"], columns=[COLUMN], settings=tiny)
    assert [(step.cell.row.name, step.state) for step in steps] == [("ce", "to do"), ("crt", "to do")]


def test_stopped_after_an_epoch_and_gone_on_with_it_ends_where_an_undisturbed_run_ends(
    filled: tuple[Path, Outcome], tiny: dict[str, Any], tmp_path: Path
) -> None:
    def fill(out: Path, **how: Any) -> Outcome:
        return reproduce_table("table2", out, rows=["elf-ce-drw"], columns=[COLUMN], settings=tiny, **how)

    told = Told()
    epochs = iter([False, True, True])
    stopped = fill(tmp_path / "here", stop=lambda: next(epochs), watcher=told)
    assert (stopped.done, stopped.stopped) == (0, True)
    assert told.lines == ["1/1 elf-ce-drw"]
    # Unknown before the first epoch; then one more of what the first one took.
    assert told.times[0] is None
    (seconds,) = (epoch["seconds"] for epoch in RunDirectory(tmp_path / "here" / COLUMN / "elf-ce-drw" / "seed0").log())
    assert told.times[1:] == [seconds]
    (step,) = planned_steps("table2", tmp_path / "here", rows=["elf-ce-drw"], columns=[COLUMN], settings=tiny)
    assert (step.state, step.epochs_done, step.epochs_left) == ("begun", 1, 1)
    # No time is left to begin anything; the table says so and nothing else changes.
    assert fill(tmp_path / "here", max_hours=0).stopped
    assert "0 of 222 cells are run" in (tmp_path / "here" / "table.md").read_text()
    # Moved as a whole, it goes on all the same.
    shutil.move(tmp_path / "here", tmp_path / "there")
    assert fill(tmp_path / "there").done == 1
    same, undisturbed = (record(out, "elf-ce-drw") for out in (tmp_path / "there", filled[0]))
    assert same["checkpoint_sha256"] == undisturbed["checkpoint_sha256"]
    assert same["points"] == undisturbed["points"]


@pytest.mark.parametrize(
    ("table", "changes", "message"),
    [
        ("table2", {"settings": {"train.lr": 0.3}}, r"of another recipe: train.lr=0.1, not 0.3; .*another --out"),
        ("table2", {"settings": {"train.epochs": 3}}, r"of another recipe: train.epochs=2, not 3"),
        ("table2", {"tier": "short"}, "holds table2 at tier smoke, not table2 at tier short"),
        ("table1", {"columns": []}, "holds table2 at tier smoke, not table1"),
        ("table2", {"max_hours": -1}, "must not be negative"),
    ],
)
def test_what_is_of_another_recipe_is_refused_before_anything_is_run(
    filled: tuple[Path, Outcome], tiny: dict[str, Any], table: str, changes: dict[str, Any], message: str
) -> None:
    # The row asked for is not there yet; those that are there would stand beside it in one table.
    asked: dict[str, Any] = {"rows": ["focal-drw" if table == "table2" else "ce"], "columns": [COLUMN], **changes}
    asked["settings"] = {**tiny, **changes.get("settings", {})}
    with pytest.raises(RequestError, match=message):
        reproduce_table(table, filled[0], **asked)
    assert not (filled[0] / COLUMN / "focal-drw").exists()


def test_a_failed_run_does_not_stop_the_others_but_those_that_start_from_it(
    tiny: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    def train(recipe: Recipe, out: Path, **_: Any) -> None:
        tried.append(out.parent.name)
        raise WorkError(f"no luck with {recipe.criterion.loss}")

    monkeypatch.setattr(run_cell, "train_recipe", train)
    told = Told()
    outcome = reproduce_table(
        "table2", tmp_path / "out", rows=["crt", "focal"], columns=[COLUMN], settings=tiny, watcher=told
    )
    assert tried == ["focal", "ce"]
    assert list(outcome.failed.values()) == [
        "no luck with focal",
        "no luck with ce",
        f"it starts from {COLUMN}/ce/seed0, which failed",
    ]
    assert told.lines[:2] == ["1/3 focal", "focal: no luck with focal"]
    assert (outcome.done, outcome.stopped) == (0, False)


def test_a_run_that_another_process_works_on_is_left_alone(
    tiny: dict[str, Any], tmp_path: Path, locked_elsewhere: Callable[[Path], AbstractContextManager[None]]
) -> None:
    with locked_elsewhere(tmp_path / COLUMN / "ce" / "seed0"):
        outcome = reproduce_table("table2", tmp_path, rows=["ce"], columns=[COLUMN], settings=tiny)
    assert "another process is working on" in outcome.failed[f"{COLUMN}/ce/seed0"]


def test_something_else_in_the_directory_is_refused(tiny: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "table.json").write_text('{"over": []}')
    with pytest.raises(RequestError, match="is not of a table of the paper"):
        reproduce_table("table2", tmp_path, rows=["ce"], settings=tiny)
    (tmp_path / "table.json").unlink()
    (tmp_path / "file").touch()
    with pytest.raises(RequestError, match="is not a directory"):
        reproduce_table("table2", tmp_path / "file", rows=["ce"], settings=tiny)
