"""The layout of a table: the paper's numbers beside ours, operating points, differences and notes."""

from typing import Any

import pytest

from elfnet.reproduce.layout import (
    Grid,
    budgets_grid,
    details_grid,
    differences_grid,
    make_document,
    overview_grid,
    spread_text,
)
from elfnet.reproduce.paper_table import TIERS, load_table
from elfnet.reproduce.render import to_markdown
from elfnet.reproduce.summary import summarize

COLUMN = "cifar10-lt-10"


@pytest.fixture
def table(make_record: Any) -> dict[str, Any]:
    records = {
        ("ce", COLUMN, 0): make_record("ce", COLUMN, full=0.861),
        ("elf-ce-drw", COLUMN, 0): make_record(
            "elf-ce-drw", COLUMN, full=0.87, accurate=(0.872, 0.9), per_exit=(0.864, 0.6)
        ),
        ("elf-ce-drw", COLUMN, 1): make_record(
            "elf-ce-drw", COLUMN, 1, full=0.88, accurate=(0.876, 0.8), per_exit=(0.868, 0.7)
        ),
    }
    return summarize(load_table("table2"), TIERS["paper"], records)


def rows(grid: Grid, system: str) -> list[list[str]]:
    """The rows of a system: its first, and those below it without a name."""
    first = next(i for i, row in enumerate(grid.rows) if row[0] == system)
    last = next((i for i in range(first + 1, len(grid.rows)) if grid.rows[i][0]), len(grid.rows))
    return [list(row) for row in grid.rows[first:last]]


def test_spread_text() -> None:
    assert spread_text({"mean": 0.8712, "deviation": None}, percent=True) == "87.1"
    assert spread_text({"mean": 0.8712, "deviation": 0.0049}, percent=True) == "87.1 ± 0.5"
    assert spread_text({"mean": 0.8712, "deviation": 0.01}) == "0.871 ± 0.010"
    assert spread_text(None) == "–"


def test_overview(table: dict[str, Any]) -> None:
    grid = overview_grid(table)
    position = [heading.group for heading in grid.headings].index("CIFAR-10-LT, 10")
    (ce,), (elf,), (joint,) = (
        rows(grid, name) for name in ("CE", "ELF(CE)+DRW", "All exits, no training rule (CE)+DRW")
    )
    assert ce[position : position + 3] == ["86.1 (1.000; n = 1)", "", "86.4 (printed 16.4) (1.000)"]
    # The paper's number is compared with the paper's rule.
    assert elf[position : position + 3] == ["87.4 ± 0.3 (0.850; n = 2)", "87.3 ± 0.7 (0.95)", "87.6 (0.736)"]
    assert joint[position : position + 3] == ["not run", "", "–"]
    assert [grid.rows[rule][0] for rule in grid.rules] == ["cRT"]


def test_details(table: dict[str, Any]) -> None:
    grid = details_grid(table, table["columns"][2])
    assert grid.title == "CIFAR-10-LT, 10"
    assert rows(grid, "CE") == [
        ["CE", "full depth", "1", "0", "86.1", "96.1", "76.1", "–", "1.000", "86.4 (printed 16.4)", "1.000"]
    ]
    assert rows(grid, "ELF(CE)+DRW") == [
        ["ELF(CE)+DRW", "full depth", "2", "0", "87.5 ± 0.7", "97.5 ± 0.7", "77.5 ± 0.7", "–", "1.000 ± 0.000", "", ""],
        ["", "one s", "2", "2,000", "87.4 ± 0.3", "97.4 ± 0.3", "77.4 ± 0.3", "–", "0.850 ± 0.071", "87.6", "0.736"],
        ["", "per exit", "2", "2,000", "86.6 ± 0.3", "96.6 ± 0.3", "76.6 ± 0.3", "–", "0.650 ± 0.071", "", ""],
        ["", "s = 0.95, fixed", "2", "0", "87.3 ± 0.7", "97.3 ± 0.7", "77.3 ± 0.7", "–", "0.950 ± 0.000", "", ""],
    ]
    assert rows(grid, "BBN") == [["BBN", "not run", "", "", "", "", "", "", "", "88.3†", "2.000"]]
    assert all(len(row) == len(grid.headings) for row in grid.rows)


def test_published_accuracies_by_group(make_record: Any) -> None:
    records = {("ce", "imagenet-lt", 0): make_record("ce", "imagenet-lt", table="table1", images=2000)}
    table = summarize(load_table("table1"), TIERS["paper"], records)
    grid = details_grid(table, table["columns"][0])
    (ce,) = rows(grid, "CE")
    assert ce[-5:] == ["44.6*", "63.8", "38.5", "13.6", "1.000"]
    assert [heading.label for heading in grid.headings[-5:]] == ["all", "many", "medium", "few", "cost"]
    assert any("a stand-in of 1,000 classes and 2,000 training images" in note for note in make_document(table).notes)


def test_the_smallest_published_saving_is_not_rounded_away(table: dict[str, Any]) -> None:
    grid = details_grid(table, table["columns"][3])
    assert rows(grid, "ELF(LDAM)+DRW")[0][-2:] == ["43.1", "0.9999"]


def test_notes(table: dict[str, Any]) -> None:
    notes = make_document(table).notes
    assert notes[0].startswith(f"2 of {len(table['cells'])} cells are run, 3 runs in total.")
    assert any("10,000 for CIFAR-10-LT, 10." in note for note in notes)
    assert "Many: classes with more than 100 training images, few: with fewer than 20." in notes
    assert notes[-1] == "Made by elfnet 0.1.0, torch 2.0, Python 3.11.0; a processor, cpu, float32."


def test_rows_with_exits_budgets_grid(table: dict[str, Any], make_record: Any) -> None:
    assert budgets_grid(table, table["columns"][2]) is None
    assert not any(note.startswith("Budgets are fractions") for note in make_document(table).notes)
    elf = make_record("elf-ce-drw", COLUMN, full=0.87, accurate=(0.872, 0.9))
    elf["points"] |= {
        "budget=0.6": {**elf["points"]["full"], "accuracy": 0.801, "mean_cost": 0.594},
        "budget=0.8": {**elf["points"]["full"], "accuracy": 0.856, "mean_cost": 0.812},
    }
    records = {("ce", COLUMN, 0): make_record("ce", COLUMN), ("elf-ce-drw", COLUMN, 0): elf}
    table = summarize(load_table("table2"), TIERS["paper"], records)
    grid = budgets_grid(table, table["columns"][2])
    assert grid is not None
    labels = ["system", "0.3", "0.4", "0.5", "0.6", "0.7", "0.8", "0.9", "1"]
    assert [heading.label for heading in grid.headings] == labels
    assert grid.rows == [["ELF(CE)+DRW", *"–––", "80.1 (0.59)", "–", "85.6 (0.81)", "–", "–"]]
    assert grid in make_document(table).grids
    assert any(note.startswith("Budgets are fractions") for note in make_document(table).notes)


def test_differences(compared: dict[str, Any]) -> None:
    grid = differences_grid(compared, compared["columns"][0])
    assert grid is not None
    assert grid.title == "CIFAR-10-LT, 100: differences of accuracy in percentage points"
    first, second, _ = grid.rows
    assert first[:4] == ["ELF(CE)+DRW", "CE+DRW", "full depth", "1"]
    assert first[4].startswith("+10.0 (+")
    assert first[5:7] == ["+0.0 (+0.0 to +0.0)", "–"]
    assert second[4:6] == ["+3.0 ± 2.8", "+0.0 ± 0.0"]
    assert differences_grid(compared, compared["columns"][1]) is None
    document = make_document(compared)
    assert any(note.startswith("Differences compare two rows image by image") for note in document.notes)
    assert grid in document.grids


def test_a_difference_that_rounds_to_zero_has_no_minus(compared: dict[str, Any]) -> None:
    (pair,) = (pair for pair in compared["differences"] if pair["against"] == "joint-ce-drw")
    pair["all"]["mean"] = -0.0003
    grid = differences_grid(compared, compared["columns"][0])
    assert grid is not None
    assert grid.rows[1][4] == "+0.0 ± 2.8"


def test_the_table_of_modern_training_compares_at_full_depth() -> None:
    table = summarize(load_table("strong"), TIERS["medium"], {})
    grid = overview_grid(table)
    assert "at full depth" in grid.title
    assert grid.rule_label == "ours"
    by_label = {row[0]: row[1:] for row in grid.rows}
    assert by_label["SHIKE, 3 experts"] == ["–", "56.3 (width 16, 1.740)", "–", "–"]
    assert by_label["Plain ResNet-32"] == ["not run", "–", "not run", "–"]
    assert "| *ours:* |" in to_markdown(make_document(table))
