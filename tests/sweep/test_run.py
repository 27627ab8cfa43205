"""Sweeps whose runs are a stand-in command: what is run, what is skipped, what is refused, what the table says."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from elfnet.errors import RequestError, WorkError
from elfnet.sweep import Cell, SweepDirectory, run_sweep
from elfnet.sweep import run as sweep_module

RECIPE = "digits/elf-ce-drw"
OVER = ["exits.train_threshold=0.2,0.3", "train.seed=0,1"]
# Accuracy 0.5 + threshold + seed / 100, so that every row of the table is known. It fails where a file says so.
STAND_IN = """
import json, sys, tomllib
from pathlib import Path
recipe, run, again = tomllib.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]), sys.argv[3]
run.mkdir(parents=True, exist_ok=True)
(run / "recipe.toml").write_text(Path(sys.argv[1]).read_text())
with (run / "times").open("a") as times:
    times.write(again + "\\n")
if (run.parent.parent / "fail").is_file() and recipe["train"]["seed"] == 1:
    sys.exit("elfnet: no luck")
accuracy = min(1.0, 0.5 + float(recipe["exits"]["train_threshold"]) + recipe["train"]["seed"] / 100)
point = {"accuracy": accuracy, "accuracy_by_group": {"many": 1.0, "medium": None, "few": 0.25}, "mean_cost": 0.75}
point |= {"n": 40, "n_by_group": {"many": 20, "medium": 0, "few": 20}, "accuracy_by_class": [accuracy], "rule": "fixed"}
point |= {"balanced_accuracy": accuracy, "macro_f1": accuracy, "worst_cost": 1.0, "exit_share": [1.0], "thresholds": []}
point |= {"exit_share_by_group": {"many": [1.0], "medium": None, "few": [1.0]}, "confusion": None}
at_s = {f"s={s}": {**point, "accuracy": accuracy - s / 10, "mean_cost": s} for s in (0.5, 0.9)}
results = {"split": "test", "n": 40, "checkpoint_sha256": "0" * 64, "cost_unit": "multiply-adds"}
results |= {"plain_multiply_adds": 100, "points": {"full": point, **at_s}, "exits": [], "curve": []}
(run / "metrics.json").write_text(json.dumps(results))
"""


@pytest.fixture(autouse=True)
def _stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    def command(sweep: SweepDirectory, cell: Cell) -> list[str]:
        run = sweep.run(cell)
        again = str(run.exists())
        return [sys.executable, "-I", "-c", STAND_IN, str(sweep.recipe_file(cell)), str(run.root), again]

    monkeypatch.setattr(sweep_module, "train_command", command)


def _times(out: Path) -> dict[str, list[str]]:
    return {run.name: (run / "times").read_text().split() for run in sorted((out / "runs").iterdir())}


@pytest.mark.parametrize("jobs", [1, 3])
def test_table_has_every_run_and_the_spread_over_seeds(tmp_path: Path, jobs: int) -> None:
    table = run_sweep(RECIPE, OVER, tmp_path / "sweep", jobs=jobs)
    assert [row["figures"]["full accuracy"] for row in table["runs"]] == pytest.approx([0.7, 0.71, 0.8, 0.81])
    assert [row["settings"] for row in table["over_seeds"]] == [
        {"exits.train_threshold": "0.2"},
        {"exits.train_threshold": "0.3"},
    ]
    first = table["over_seeds"][0]["figures"]["full accuracy"]
    assert first["mean"] == pytest.approx(0.705)
    assert first["deviation"] == pytest.approx(0.01 / 2**0.5)
    assert json.loads((tmp_path / "sweep" / "table.json").read_text()) == table
    lines = (tmp_path / "sweep" / "table.md").read_text().splitlines()
    assert "| 0.3 | 1 | 81.0 | 100.0 | – | 25.0 | 0.750 | 40 |" in lines
    assert "| 0.2 | 70.5 ± 0.7 | 100.0 ± 0.0 | – | 25.0 ± 0.0 | 0.750 ± 0.000 | 2 |" in lines
    # The paper's ablation: t by s, every s from the same run.
    assert lines[-4:] == [
        "| exits.train_threshold | s = 0.5 | s = 0.9 |",
        "| --- | --- | --- |",
        "| 0.2 | 65.5 at 0.50 | 61.5 at 0.90 |",
        "| 0.3 | 75.5 at 0.50 | 71.5 at 0.90 |",
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent ended")
def test_a_sweep_that_is_killed_leaves_no_run_behind(tmp_path: Path) -> None:
    forever = [sys.executable, "-I", "-c", "import os, signal; os.write(3, b'here'); signal.pause()"]
    starts = (
        "import os, sys\n"
        "from elfnet.sweep import run\n"
        "from elfnet.sweep import run_sweep\n"
        f"run.train_command = lambda sweep, cell: {forever!r}\n"
        "popen = run.subprocess.Popen\n"
        "run.subprocess.Popen = lambda *words, **how: popen(*words, **how, pass_fds=[3])\n"
        "os.dup2(int(sys.argv[1]), 3)\n"
        f"run_sweep({RECIPE!r}, ['train.seed=0'], {str(tmp_path / 'sweep')!r})\n"
    )
    reads, writes = os.pipe()
    sweep = subprocess.Popen([sys.executable, "-c", starts, str(writes)], pass_fds=[writes])
    os.close(writes)
    with os.fdopen(reads, "rb") as said:
        assert said.read(4) == b"here"
        sweep.kill()
        # The pipe ends when the run does; the test would hang if it went on.
        assert said.read() == b""
    assert sweep.wait() == -signal.SIGKILL


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"backend": "ray", "jobs": 2}, "--jobs 2 is for --backend local"),
        ({"cpus": 2}, "--cpus is for --backend ray"),
        ({"gpus": 1}, "--gpus is for --backend ray"),
        ({"address": "10.0.0.1:6379"}, "--address is for --backend ray"),
    ],
)
def test_options_of_the_other_backend_are_refused(tmp_path: Path, given: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        run_sweep(RECIPE, OVER, tmp_path / "sweep", **given)
    assert not (tmp_path / "sweep").exists()


def test_finished_runs_are_skipped_and_failed_runs_resume(tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    seen: list[tuple[str, str | None]] = []

    def first_fails(cell: Cell, failure: str | None) -> None:
        # Written only now: a sweep does not begin in a directory that has something else in it.
        (out / "fail").touch()
        seen.append((cell.name, failure))

    with pytest.raises(
        WorkError, match=r"2 of 4 runs failed, the first being .*seed=1 \(no luck\).*run the same command to resume"
    ):
        run_sweep(RECIPE, OVER, out, on_finished=first_fails)
    assert [failure for _, failure in seen] == [None, "no luck", None, "no luck"]
    assert len(json.loads((out / "table.json").read_text())["runs"]) == 2
    (out / "fail").unlink()
    table = run_sweep(RECIPE, OVER, out)
    assert len(table["runs"]) == 4
    # Finished runs ran once; failed runs were resumed.
    assert list(_times(out).values()) == [["False"], ["False", "True"], ["False"], ["False", "True"]]


def test_another_sweep_or_something_else_is_refused(tmp_path: Path) -> None:
    run_sweep(RECIPE, ["train.seed=0"], tmp_path / "sweep")
    for over, settings in ((["train.seed=0,1"], {}), (["train.seed=0"], {"train.epochs": 3})):
        with pytest.raises(RequestError, match="contains another sweep"):
            run_sweep(RECIPE, over, tmp_path / "sweep", settings=settings)
    with pytest.raises(RequestError, match="exists and is not a sweep"):
        run_sweep(RECIPE, ["train.seed=0"], tmp_path)


def test_missing_ray_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(RequestError, match="--backend ray needs ray"):
        run_sweep(RECIPE, ["train.seed=0"], tmp_path / "sweep", backend="ray")
