"""The table as data: means, spreads, what is compared with the paper, and what differs from it."""

from typing import Any

import pytest

from elfnet.reproduce.document import document_of
from elfnet.reproduce.paper_table import load_table
from elfnet.reproduce.summary import spread, summarise
from elfnet.reproduce.tiers import TIERS

COLUMN = "cifar10-lt-100"


def table_of(*records: tuple[tuple[str, str, int], dict[str, Any]], tier: str = "paper") -> dict[str, Any]:
    return summarise(load_table("table2"), TIERS[tier], dict(records))


def cell_of(table: dict[str, Any], row: str, column: str = COLUMN) -> dict[str, Any]:
    (cell,) = (cell for cell in table["cells"] if (cell["row"], cell["column"]) == (row, column))
    return dict(cell)


def test_mean_and_sample_deviation() -> None:
    several = spread([0.7, 0.8, 0.9])
    assert several is not None
    assert several["mean"] == pytest.approx(0.8)
    assert several["deviation"] == pytest.approx(0.1)
    assert spread([0.7]) == {"mean": 0.7, "deviation": None}
    assert spread([0.7, None]) is None
    assert spread([]) is None


def test_cells_that_are_not_run_say_so(make_record: Any) -> None:
    table = table_of((("ce", COLUMN, 0), make_record("ce")))
    assert len(table["cells"]) == len(table["rows"]) * 6
    missing = cell_of(table, "bbn")
    assert (missing["state"], missing["n"], missing["points"], missing["as_in_paper"]) == ("not run", 0, {}, None)
    assert missing["paper"]["all"] == 79.8
    assert cell_of(table, "joint-ce-drw")["paper"] is None


def test_over_seeds(make_record: Any) -> None:
    table = table_of(
        *(
            (
                ("elf-ce-drw", COLUMN, seed),
                make_record("elf-ce-drw", seed=seed, full=full, accurate=(full - 0.01, cost)),
            )
            for seed, full, cost in ((0, 0.7, 0.8), (2, 0.74, 0.6))
        )
    )
    cell = cell_of(table, "elf-ce-drw")
    assert (cell["seeds"], cell["n"], cell["exits"]) == ([0, 2], 2, 2)
    assert cell["points"]["accurate"]["accuracy"]["mean"] == pytest.approx(0.71)
    assert cell["points"]["full"]["accuracy"]["deviation"] == pytest.approx(0.04 / 2**0.5)
    assert cell["points"]["accurate"]["mean_cost"]["mean"] == pytest.approx(0.7)
    assert cell["points"]["full"]["accuracy_by_group"]["few"] is None
    assert cell["points"]["within-1"] is None
    assert cell["as_in_paper"] is True


def test_cost_is_relative_to_the_plain_row_whatever_network_a_row_has(make_record: Any) -> None:
    """BBN's own network without exits is BBN; it is compared with CE's all the same."""
    record = make_record("bbn", plain_multiply_adds=260)
    points = cell_of(table_of((("bbn", COLUMN, 0), record)), "bbn")["points"]
    assert points["full"]["mean_cost"]["mean"] == pytest.approx(2.6)
    assert points["full"]["worst_cost"] == pytest.approx(1.1 * 2.6)


def test_what_is_not_the_paper_s_experiment_is_marked(make_record: Any) -> None:
    key = ("ce", COLUMN, 1)
    assert cell_of(table_of((key, make_record("ce", seed=1))), "ce")["as_in_paper"] is True
    short = table_of((key, make_record("ce", seed=1, tier="short")), tier="short")
    assert cell_of(short, "ce")["as_in_paper"] is False
    assert short["changed_settings"] == {}
    changed = table_of((key, make_record("ce", seed=1, settings={"train.lr": 0.2, "train.threads": 1})))
    assert changed["changed_settings"] == {"train.lr": [0.2]}
    assert cell_of(changed, "ce")["as_in_paper"] is False
    other = table_of((key, make_record("ce", seed=1, images=500)))
    assert "a stand-in of 10 classes and 500 training images" in other["stand_ins"][COLUMN]
    assert cell_of(other, "ce")["as_in_paper"] is False


def test_smoke_says_which_data_it_has_instead(make_record: Any) -> None:
    table = table_of((("ce", COLUMN, 0), make_record("ce", tier="smoke", images=414)), tier="smoke")
    assert table["columns"][0]["label"] == "CIFAR-10-LT, 100 (digits instead)"
    assert table["stand_ins"] == {}


def test_what_is_trained_at_double_cost_is_named(make_record: Any) -> None:
    table = table_of((("ce", COLUMN, 0), make_record("ce")), (("bbn", COLUMN, 0), make_record("bbn")))
    assert table["trained_at_double_cost"] == ["BBN"]
    (note,) = (note for note in document_of(table).notes if note.startswith("BBN runs two batches"))
    assert "training costs twice that of row CE" in note
    assert "BBN" not in " ".join(document_of(table_of((("ce", COLUMN, 0), make_record("ce")))).notes)


def test_runs_with_the_beginning_of_another_row_are_named_when_not_all_have_it(make_record: Any) -> None:
    """Seed 0 had CE first, seed 1 CE+DRW: either row has the other's beginning once."""
    taken = {"epochs": 200, "epochs_taken_over": 160}
    table = table_of(
        (("ce", COLUMN, 0), make_record("ce")),
        (("ce-drw", COLUMN, 0), make_record("ce-drw", training_of="ce", **taken)),
        (("ce", COLUMN, 1), make_record("ce", seed=1, training_of="ce-drw", **taken)),
        (("ce-drw", COLUMN, 1), make_record("ce-drw", seed=1)),
    )
    assert [note for note in document_of(table).notes if "first 160 epochs" in note] == [
        "CE (CIFAR-10-LT, 100, seed 1) has its first 160 epochs from CE+DRW: its own would differ in nothing.",
        "CE+DRW (CIFAR-10-LT, 100, seed 0) has its first 160 epochs from CE: its own would differ in nothing.",
    ]
