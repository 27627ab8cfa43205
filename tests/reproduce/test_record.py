"""The record of a run: how it was made, one bit per test image, and the comparison of two records."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elfnet.calibrate.point_family import Family
from elfnet.evaluate.bootstrap import paired_bootstrap
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.policy_replay import Replay, replay
from elfnet.reproduce.record import compare_records, correct_answers
from elfnet.reproduce.run import Outcome
from elfnet.run.directory import RunDirectory

COLUMN = "cifar10-lt-100"
ROWS = ("ce", "elf-ce-drw")
Records = tuple[dict[str, Any], dict[str, Any]]


@pytest.fixture(scope="module")
def records(filled: tuple[Path, Outcome]) -> Records:
    out, _ = filled
    plain, elf = (json.loads((out / "records" / COLUMN / row / "seed0.json").read_text()) for row in ROWS)
    return plain, elf


def answers(out: Path, row: str, point: str) -> tuple[ExitTable, Replay]:
    run = RunDirectory(out / COLUMN / row / "seed0")
    table = ExitTable.open(run.table("test"))
    return table, replay(table, Family.open(run.policy_file).point(point).policy)


def test_a_record_says_how_the_run_was_made(filled: tuple[Path, Outcome], records: Records) -> None:
    out, _ = filled
    _, found = records
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


def test_a_record_has_no_path(filled: tuple[Path, Outcome]) -> None:
    out, _ = filled
    files = list((out / "records").rglob("*.json"))
    assert len(files) == 3
    assert str(out) not in "".join(file.read_text() for file in files)


def test_answers_are_kept_at_full_depth_and_budgets(records: Records) -> None:
    plain, elf = records
    assert list(plain["right"]["points"]) == ["full"]
    assert {"full", "budget=0.4", "budget=0.6", "budget=0.9"} <= set(elf["right"]["points"])
    assert "accurate" not in elf["right"]["points"]
    assert sum(elf["right"]["examples_of_class"]) == elf["n"]


def test_answers_take_one_bit_per_image(filled: tuple[Path, Outcome]) -> None:
    """Base64 has four letters for three bytes."""
    run = RunDirectory(filled[0] / COLUMN / "ce" / "seed0")
    (text,) = correct_answers(run, ["full"])["points"].values()
    examples = ExitTable.open(run.table("test")).examples
    assert len(text) <= 4 * (-(-examples // 8) // 3 + 1)


@pytest.mark.parametrize("point", ["full", "budget=0.6"])
def test_the_difference_to_a_run_without_correct_answers_is_the_accuracy(records: Records, point: str) -> None:
    _, elf = records
    nothing = {**elf, "right": {**elf["right"], "points": {point: "A" * len(elf["right"]["points"][point])}}}
    differences = compare_records(nothing, elf, point)
    assert differences is not None
    measured = {"all": elf["points"][point]["accuracy"], **elf["points"][point]["accuracy_by_group"]}
    assert set(differences) == set(measured)
    for name, accuracy in measured.items():
        difference = differences[name]
        assert (difference is None) is (accuracy is None)
        assert difference is None or difference.estimate == pytest.approx(accuracy)


def test_records_and_exit_tables_give_the_same_differences(filled: tuple[Path, Outcome], records: Records) -> None:
    plain, elf = records
    differences = compare_records(plain, elf, "full")
    assert differences is not None
    first, second = (answers(filled[0], row, "full") for row in ROWS)
    expected = paired_bootstrap(first, second, resamples=10_000)
    for name, difference in differences.items():
        other = expected.differences[name]
        if difference is None or other is None:
            assert difference is other
            continue
        assert difference.n == other.n
        assert difference.estimate == pytest.approx(other.estimate)
        assert np.allclose((difference.low, difference.high), (other.low, other.high), atol=0.01)


def test_records_of_other_data_or_without_the_point_are_not_compared(records: Records) -> None:
    plain, elf = records
    other_data = {**plain, "data": {**plain["data"], "fingerprint": "another"}}
    older = {name: value for name, value in plain.items() if name != "right"}
    assert compare_records(other_data, elf, "full") is None
    assert compare_records(older, elf, "full") is None
    assert compare_records(elf, older, "full") is None
    # A plain network has no budgets.
    assert compare_records(plain, elf, "budget=0.6") is None
