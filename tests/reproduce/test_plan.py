"""The plan of a table: the state of its runs, and the estimate of the remaining time."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from elfnet.reproduce.cell import Cell
from elfnet.reproduce.directory import TableDirectory
from elfnet.reproduce.paper_table import load_table
from elfnet.reproduce.plan import EpochTimes, measured_epoch_times, plan_table
from elfnet.reproduce.run import Outcome

TABLE = load_table("table2")
COLUMN = "cifar10-lt-100"


def cell(row: str, column: str, seed: int = 0) -> Cell:
    return Cell(TABLE.row(row), TABLE.column(column), seed)


def test_finished_runs_are_done(filled: tuple[Path, Outcome], tiny: dict[str, Any]) -> None:
    rows = ["ce", "elf-ce-drw", "tau-norm", "crt"]
    plan = plan_table("table2", filled[0], rows=rows, columns=[COLUMN], settings=tiny)
    assert [(planned.cell.row.name, planned.state, planned.epochs_left) for planned in plan] == [
        ("ce", "done", 0),
        ("elf-ce-drw", "done", 0),
        ("crt", "to do", 2),
        ("tau-norm", "done", 0),
    ]


def test_a_deleted_run_is_repeated_only_if_another_run_starts_from_it(
    filled: tuple[Path, Outcome], tiny: dict[str, Any], tmp_path: Path
) -> None:
    shutil.copytree(filled[0] / "records", tmp_path / "records")

    def states(rows: list[str]) -> list[tuple[str, str]]:
        plan = plan_table("table2", tmp_path, rows=rows, columns=[COLUMN], settings=tiny)
        return [(planned.cell.row.name, planned.state) for planned in plan]

    assert states(["ce", "tau-norm"]) == [("ce", "done"), ("tau-norm", "done")]
    assert states(["crt"]) == [("ce", "to do"), ("crt", "to do")]


def test_nothing_is_estimated_before_the_first_epoch() -> None:
    assert EpochTimes().remaining([(cell("ce", "cifar10-lt-10"), 3)]) is None
    assert EpochTimes().remaining([]) == 0


def test_the_estimate_is_of_the_same_row_then_the_column_then_all() -> None:
    times = EpochTimes()
    for seconds in (2.0, 4.0):
        times.add(cell("ce", "cifar10-lt-10"), seconds)
    times.add(cell("bbn", "cifar10-lt-10"), 9.0)
    times.add(cell("ce", "cifar10-lt-100"), 12.0)
    assert times.estimate(cell("ce", "cifar10-lt-10", seed=1)) == 3
    # Each row of the column counts once, regardless of its number of epochs.
    assert times.estimate(cell("focal", "cifar10-lt-10")) == 6
    assert times.estimate(cell("focal", "cifar100-lt-10")) == pytest.approx((3 + 9 + 12) / 3)
    todo = [(cell("ce", "cifar10-lt-10", 1), 10), (cell("focal", "cifar10-lt-10"), 2)]
    assert times.remaining(todo) == pytest.approx(42)


def test_epoch_times_come_from_logs_or_from_records(filled: tuple[Path, Outcome], tmp_path: Path) -> None:
    out, _ = filled
    seconds = [epoch.seconds for epoch in TableDirectory(out).run(cell("ce", COLUMN)).log()]
    from_logs = measured_epoch_times(TABLE, TableDirectory(out)).estimate(cell("ce", COLUMN))
    assert from_logs == pytest.approx(sum(seconds) / 2)
    shutil.copytree(out / "records", tmp_path / "records")
    from_records = measured_epoch_times(TABLE, TableDirectory(tmp_path)).estimate(cell("ce", COLUMN))
    assert from_records == pytest.approx(sum(seconds) / 2, abs=0.001)
