"""Pairs of rows, over the seeds that both have."""

from typing import Any

import numpy as np
import pytest

from elfnet.reproduce.document import document_of
from elfnet.reproduce.layout import differences
from elfnet.reproduce.pair_differences import pair_differences
from elfnet.reproduce.paper_table import TABLES, load_table
from elfnet.reproduce.right_answers import pack_bits
from elfnet.reproduce.summary import summarise
from elfnet.reproduce.tiers import TIERS

COLUMN = "cifar10-lt-100"
EXAMPLES_OF_CLASS = [10] * 10


def with_answers(record: dict[str, Any], right: int, **points: int) -> dict[str, Any]:
    """The record of a run that answers the first so many of 100 images right; the first 10 are of the large class."""
    answers = {"full": right, **{name.replace("_", "="): number for name, number in points.items()}}
    packed = {name: pack_bits(np.arange(100) < number) for name, number in answers.items()}
    data = {**record["data"], "fingerprint": "the same"}
    return {**record, "data": data, "right": {"examples_of_class": EXAMPLES_OF_CLASS, "points": packed}}


@pytest.fixture
def table(make_record: Any) -> dict[str, Any]:
    records = {
        ("ce-drw", COLUMN, 0): with_answers(make_record("ce-drw"), 60),
        ("elf-ce-drw", COLUMN, 0): with_answers(make_record("elf-ce-drw"), 70, budget_0=66),
        ("joint-ce-drw", COLUMN, 0): with_answers(make_record("joint-ce-drw"), 65),
        ("joint-ce-drw", COLUMN, 1): with_answers(make_record("joint-ce-drw", seed=1), 69),
        ("elf-ce-drw", COLUMN, 1): with_answers(make_record("elf-ce-drw", seed=1), 70),
        # Of an older record, and of a seed that the other row does not have.
        ("ldam-drw", COLUMN, 0): make_record("ldam-drw"),
        ("ce-drw", COLUMN, 3): with_answers(make_record("ce-drw", seed=3), 1),
    }
    return summarise(load_table("table2"), TIERS["paper"], records)


def found(table: dict[str, Any], row: str, against: str) -> dict[str, Any]:
    (one,) = (d for d in table["differences"] if (d["row"], d["against"]) == (row, against))
    return dict(one)


def test_of_one_seed_with_the_interval_of_its_images(table: dict[str, Any]) -> None:
    gain = found(table, "elf-ce-drw", "ce-drw")
    assert (gain["column"], gain["point"], gain["seeds"], gain["n"]) == (COLUMN, "full", [0], 1)
    assert gain["all"]["mean"] == pytest.approx(0.10)
    assert 0.0 < gain["all"]["low"] < 0.10 < gain["all"]["high"] < 0.2
    assert gain["all"]["deviation"] is None
    # The large class is answered right by both; no class is medium.
    assert gain["many"] == {"mean": 0.0, "deviation": None, "low": 0.0, "high": 0.0}
    assert gain["medium"] is None
    assert gain["few"]["mean"] == pytest.approx(10 / 90)


def test_of_several_seeds_with_their_spread(table: dict[str, Any]) -> None:
    gain = found(table, "elf-ce-drw", "joint-ce-drw")
    assert gain["seeds"] == [0, 1]
    assert gain["all"]["mean"] == pytest.approx(0.03)
    assert gain["all"]["deviation"] == pytest.approx(0.04 / 2**0.5)
    assert (gain["all"]["low"], gain["all"]["high"]) == (None, None)


def test_only_pairs_that_both_have_answers(table: dict[str, Any]) -> None:
    pairs = [(one["row"], one["against"]) for one in table["differences"]]
    assert pairs == [("elf-ce-drw", "ce-drw"), ("elf-ce-drw", "joint-ce-drw"), ("joint-ce-drw", "ce-drw")]
    assert pair_differences(load_table("table2"), {}) == []


def test_as_text(table: dict[str, Any]) -> None:
    column = table["columns"][0]
    grid = differences(table, column)
    assert grid is not None
    assert grid.title == "CIFAR-10-LT, 100: differences in points of accuracy"
    one, two, _ = grid.rows
    assert one[:4] == ["ELF(CE)+DRW", "CE+DRW", "full depth", "1"]
    assert one[4].startswith("+10.0 (+")
    assert one[5:7] == ["+0.0 (+0.0 to +0.0)", "–"]
    assert two[4:6] == ["+3.0 ± 2.8", "+0.0 ± 0.0"]
    assert differences(table, table["columns"][1]) is None
    document = document_of(table)
    assert any(note.startswith("Differences compare two rows image by image") for note in document.notes)
    assert grid in document.grids


def test_nothing_lost_has_no_minus(table: dict[str, Any]) -> None:
    found(table, "elf-ce-drw", "joint-ce-drw")["all"]["mean"] = -0.0003
    grid = differences(table, table["columns"][0])
    assert grid is not None
    assert grid.rows[1][4] == "+0.0 ± 2.8"


@pytest.mark.parametrize("name", TABLES)
def test_pairs_are_of_rows_that_the_table_has(name: str) -> None:
    table = load_table(name)
    rows = {row.name for row in table.rows}
    assert table.pairs
    assert {pair.row for pair in table.pairs} | {pair.against for pair in table.pairs} <= rows


def test_table_2_has_every_pair() -> None:
    """A slip in a name would leave the pair out of all tables."""
    assert len(load_table("table2").pairs) == 15
