"""elfnet reproduce: listing, filling, stopping and resuming a table, and wrong requests."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from elfnet.reproduce import run as run_module

Call = Callable[..., tuple[int, str, str]]
COLUMN = "cifar10-lt-100"


@pytest.fixture
def flags(tiny_settings: dict[str, Any]) -> list[object]:
    settings = {**tiny_settings, "train.epochs": 3}
    del settings["train.threads"]
    return [word for name, value in settings.items() for word in (f"--{name}", value)]


def test_list(elfnet: Call, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["reproduce", "table2", "--tier", "short", "--rows", "tau-norm,ce-drw", "--columns", COLUMN, "--out", out]
    code, listed, _ = elfnet(*words, "--list", "--json")
    assert code == 0
    assert [(run["row"], run["epochs"], run["state"], run["in_paper"]) for run in json.loads(listed)] == [
        ("ce-drw", 40, "to do", True),
        ("ce", 40, "to do", True),
        ("tau-norm", 0, "to do", False),
    ]
    code, listed, _ = elfnet(*words, "--list")
    assert code == 0
    assert "τ-norm" in listed
    assert not out.exists()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["table4"], "invalid choice: 'table4'"),
        (["table2", "--rows", "elf-ce-drv"], "did you mean 'elf-ce-drw'"),
        (["table2", "--columns", "cifar10-lt-101"], "did you mean 'cifar10-lt-10"),
        (["table2", "--seeds", "0,x"], "--seeds: '0,x' must be whole numbers separated by commas"),
        (["table2", "--rows", ","], "--rows: ',' contains no name; --list shows the names"),
        (["table2", "--seeds", "0,0"], "--seeds 0,0 has a seed twice; give each seed once"),
        (["table2", "--tier", "long"], "argument --tier: invalid choice: 'long'"),
        (["table2", "--max-hours", "-1"], "--max-hours -1 must not be negative"),
        (["table2", "--train.seed", "1"], "--train.seed cannot be set for a whole table; use --seeds"),
        (["table2", "--train.epoch", "1"], "did you mean --train.epochs"),
    ],
)
def test_wrong_requests(elfnet: Call, tmp_path: Path, words: list[str], expected: str) -> None:
    code, out, error = elfnet("reproduce", *words, "--out", tmp_path / "out")
    assert (code, out, error.count("\n")) == (2, "", 1)
    assert expected in error


def test_an_interrupt_stops_after_the_epoch_and_the_same_command_resumes(
    elfnet: Call, tmp_path: Path, flags: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    words = ["reproduce", "table2", "--rows", "ce", "--columns", COLUMN, "--threads", 1, "--out", out, *flags]
    run_cell = run_module.run_cell

    def interrupted(*args: Any, **options: Any) -> bool:
        os.kill(os.getpid(), signal.SIGINT)
        return run_cell(*args, **options)

    before = signal.getsignal(signal.SIGINT)
    with monkeypatch.context() as patched:
        patched.setattr(run_module, "run_cell", interrupted)
        code, said, progress = elfnet(*words)
    assert code == 130
    assert "stopped: 0 of 1 runs are done; progress is saved; run the same command to resume\n" in said
    assert "stopping after this epoch" in progress
    assert "epoch 1/3" in progress
    assert "epoch 2/3" not in progress
    assert signal.getsignal(signal.SIGINT) is before
    code, said, progress = elfnet(*words, "--json")
    assert code == 0
    assert "resuming after epoch 1/3" in progress
    assert "left for all runs" in progress
    results = json.loads(said)
    assert (results["done"], results["runs"], results["stopped"]) == (1, 1, False)
    assert {file.name for file in out.glob("table.*")} == {"table.md", "table.html", "table.tex", "table.json"}
    code, _, error = elfnet(*words, "--train.lr", 0.3)
    assert (code, error.count("\n")) == (2, 1)
    assert "train.lr=0.1, not 0.3" in error


def test_a_failed_run_is_reported_last(elfnet: Call, tmp_path: Path) -> None:
    code, _, error = elfnet(
        *("reproduce", "table1", "--tier", "short", "--rows", "ce", "--columns", "imagenet-lt"),
        *("--data.root", tmp_path / "nowhere", "--out", tmp_path / "out"),
    )
    assert code == 1
    assert "1 of 1 runs failed, the first is imagenet-lt/ce/seed0 (" in error.splitlines()[-1]
    assert error.endswith("; progress is saved; run the same command to resume\n")
    assert "not run" in (tmp_path / "out" / "table.md").read_text()
