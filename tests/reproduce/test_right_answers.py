"""What a record keeps of every test image, and what two records say of each other."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elfnet.calibrate.family import Family
from elfnet.evaluate.bootstrap import paired_bootstrap
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.replay import Replay, replay
from elfnet.reproduce.right_answers import right_answers, row_differences
from elfnet.reproduce.run_table import Outcome
from elfnet.run.directory import RunDirectory

COLUMN = "cifar10-lt-100"
ROWS = ("ce", "elf-ce-drw")
Records = tuple[dict[str, Any], dict[str, Any]]


@pytest.fixture(scope="module")
def records(filled: tuple[Path, Outcome]) -> Records:
    out, _ = filled
    plain, elf = (json.loads((out / "records" / COLUMN / row / "seed0.json").read_text()) for row in ROWS)
    return plain, elf


def answered(out: Path, row: str, point: str) -> tuple[ExitTable, Replay]:
    run = RunDirectory(out / COLUMN / row / "seed0")
    table = ExitTable.open(run.table("test"))
    return table, replay(table, Family.open(run.policy_file).point(point).policy)


def test_records_keep_full_depth_and_budgets(records: Records) -> None:
    plain, elf = records
    assert list(plain["right"]["points"]) == ["full"]
    assert {"full", "budget=0.4", "budget=0.6", "budget=0.9"} <= set(elf["right"]["points"])
    assert "accurate" not in elf["right"]["points"]
    assert sum(elf["right"]["examples_of_class"]) == elf["n"]


def test_a_small_share_of_the_record(filled: tuple[Path, Outcome]) -> None:
    """A bit an image, four letters for three bytes."""
    run = RunDirectory(filled[0] / COLUMN / "ce" / "seed0")
    (text,) = right_answers(run, ["full"])["points"].values()
    examples = ExitTable.open(run.table("test")).examples
    assert len(text) <= 4 * (-(-examples // 8) // 3 + 1)


@pytest.mark.parametrize("point", ["full", "budget=0.6"])
def test_of_a_run_against_itself_turned_round(records: Records, point: str) -> None:
    """Against a run that is wrong everywhere the difference is the accuracy itself, of all and of each group."""
    _, elf = records
    nothing = {**elf, "right": {**elf["right"], "points": {point: "A" * len(elf["right"]["points"][point])}}}
    found = row_differences(nothing, elf, point)
    assert found is not None
    measured = {"all": elf["points"][point]["accuracy"], **elf["points"][point]["accuracy_by_group"]}
    assert set(found) == set(measured)
    for name, accuracy in measured.items():
        difference = found[name]
        assert (difference is None) is (accuracy is None)
        assert difference is None or difference.estimate == pytest.approx(accuracy)


def test_the_same_as_from_the_exit_tables(filled: tuple[Path, Outcome], records: Records) -> None:
    plain, elf = records
    found = row_differences(plain, elf, "full")
    assert found is not None
    first, second = (answered(filled[0], row, "full") for row in ROWS)
    expected = paired_bootstrap(first, second, resamples=10_000)
    for name, difference in found.items():
        other = expected.differences[name]
        if difference is None or other is None:
            assert difference is other
            continue
        assert difference.n == other.n
        assert difference.estimate == pytest.approx(other.estimate)
        assert np.allclose((difference.low, difference.high), (other.low, other.high), atol=0.01)


def test_what_cannot_be_compared(records: Records) -> None:
    plain, elf = records
    other_data = {**plain, "data": {**plain["data"], "fingerprint": "another"}}
    older = {name: value for name, value in plain.items() if name != "right"}
    assert row_differences(other_data, elf, "full") is None
    assert row_differences(older, elf, "full") is None
    assert row_differences(elf, older, "full") is None
    # A plain network has no budgets.
    assert row_differences(plain, elf, "budget=0.6") is None
