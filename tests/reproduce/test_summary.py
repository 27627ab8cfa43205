"""The content of table.json: means and spreads, comparisons of rows, and what differs from the paper."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from elfnet.reproduce.layout import make_document
from elfnet.reproduce.paper_table import TIERS, load_table
from elfnet.reproduce.run import reproduce_table
from elfnet.reproduce.summary import compare_pairs, spread, stand_in_text, summarize

COLUMN = "cifar10-lt-100"


def table_of(*records: tuple[tuple[str, str, int], dict[str, Any]], tier: str = "paper") -> dict[str, Any]:
    return summarize(load_table("table2"), TIERS[tier], dict(records))


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


def test_cells_without_records_are_not_run(make_record: Any) -> None:
    table = table_of((("ce", COLUMN, 0), make_record("ce")))
    assert len(table["cells"]) == len(table["rows"]) * 6
    missing = cell_of(table, "bbn")
    assert (missing["state"], missing["n"], missing["points"], missing["as_in_paper"]) == ("not run", 0, {}, None)
    assert missing["paper"]["all"] == 79.8
    assert cell_of(table, "joint-ce-drw")["paper"] is None


def test_mean_and_deviation_over_seeds(make_record: Any) -> None:
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


def test_cost_is_relative_to_the_baseline_row(make_record: Any) -> None:
    """A record of BBN has costs relative to BBN's own network; the table's are relative to CE's."""
    record = make_record("bbn", plain_multiply_adds=260)
    points = cell_of(table_of((("bbn", COLUMN, 0), record)), "bbn")["points"]
    assert points["full"]["mean_cost"]["mean"] == pytest.approx(2.6)
    assert points["full"]["worst_cost"] == pytest.approx(1.1 * 2.6)


def test_another_experiment_than_the_papers_is_marked(make_record: Any) -> None:
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


def test_the_smoke_tier_names_its_data(make_record: Any) -> None:
    table = table_of((("ce", COLUMN, 0), make_record("ce", tier="smoke", images=414)), tier="smoke")
    assert table["columns"][0]["label"] == "CIFAR-10-LT, 100 (digits instead)"
    assert table["stand_ins"] == {}


def test_rows_trained_at_double_cost_have_a_note(make_record: Any) -> None:
    table = table_of((("ce", COLUMN, 0), make_record("ce")), (("bbn", COLUMN, 0), make_record("bbn")))
    assert table["trained_at_double_cost"] == ["BBN"]
    (note,) = (note for note in make_document(table).notes if note.startswith("BBN runs two batches"))
    assert "training costs twice that of row CE" in note
    assert "BBN" not in " ".join(make_document(table_of((("ce", COLUMN, 0), make_record("ce")))).notes)


def test_runs_that_share_a_training_are_named_if_not_all_runs_of_the_row_do(make_record: Any) -> None:
    """CE was run first with seed 0, CE+DRW with seed 1."""
    taken = {"epochs": 200, "epochs_taken_over": 160}
    table = table_of(
        (("ce", COLUMN, 0), make_record("ce")),
        (("ce-drw", COLUMN, 0), make_record("ce-drw", training_of="ce", **taken)),
        (("ce", COLUMN, 1), make_record("ce", seed=1, training_of="ce-drw", **taken)),
        (("ce-drw", COLUMN, 1), make_record("ce-drw", seed=1)),
    )
    assert [note for note in make_document(table).notes if "first 160 epochs" in note] == [
        "CE (CIFAR-10-LT, 100, seed 1) shares its first 160 epochs with CE+DRW: the trainings are the same until then.",
        "CE+DRW (CIFAR-10-LT, 100, seed 0) shares its first 160 epochs with CE: the trainings are the same until then.",
    ]


def difference(table: dict[str, Any], row: str, against: str) -> dict[str, Any]:
    (found,) = (d for d in table["differences"] if (d["row"], d["against"]) == (row, against))
    return dict(found)


def test_a_pair_with_one_seed_has_the_interval_over_images(compared: dict[str, Any]) -> None:
    gain = difference(compared, "elf-ce-drw", "ce-drw")
    assert (gain["column"], gain["point"], gain["seeds"], gain["n"]) == (COLUMN, "full", [0], 1)
    assert gain["all"]["mean"] == pytest.approx(0.10)
    assert 0.0 < gain["all"]["low"] < 0.10 < gain["all"]["high"] < 0.2
    assert gain["all"]["deviation"] is None
    # Both rows classify the large class correctly; no class is medium.
    assert gain["many"] == {"mean": 0.0, "deviation": None, "low": 0.0, "high": 0.0}
    assert gain["medium"] is None
    assert gain["few"]["mean"] == pytest.approx(10 / 90)


def test_a_pair_with_several_seeds_has_their_deviation(compared: dict[str, Any]) -> None:
    gain = difference(compared, "elf-ce-drw", "joint-ce-drw")
    assert gain["seeds"] == [0, 1]
    assert gain["all"]["mean"] == pytest.approx(0.03)
    assert gain["all"]["deviation"] == pytest.approx(0.04 / 2**0.5)
    assert (gain["all"]["low"], gain["all"]["high"]) == (None, None)


def test_only_pairs_with_answers_of_both_rows_are_compared(compared: dict[str, Any]) -> None:
    pairs = [(pair["row"], pair["against"]) for pair in compared["differences"]]
    assert pairs == [("elf-ce-drw", "ce-drw"), ("elf-ce-drw", "joint-ce-drw"), ("joint-ce-drw", "ce-drw")]
    assert compare_pairs(load_table("table2"), {}) == []


def test_the_real_class_counts_are_no_stand_in() -> None:
    imagenet, inaturalist = load_table("table1").columns
    counts = [1280, 5] + [114] * 997 + [115846 - 1285 - 114 * 997]
    assert stand_in_text(imagenet, {"class_counts": counts, "images": 115846}) is None
    # A tenth is held out, so the size of the largest class is not known.
    assert stand_in_text(inaturalist, {"class_counts": [900] * 8142, "images": 437513}) is None


def test_other_class_counts_are_a_stand_in() -> None:
    imagenet, _ = load_table("table1").columns
    text = stand_in_text(imagenet, {"class_counts": [12, 7, 2], "images": 21})
    assert text == (
        "ImageNet-LT: a stand-in of 3 classes and 21 training images (12 to 2 per class); the real data set has 1,000 "
        "classes and 115,846 images"
    )
    counts = [1281, 5] + [114] * 997 + [115846 - 1286 - 114 * 997]
    assert stand_in_text(imagenet, {"class_counts": counts, "images": 115846}) is not None
    assert stand_in_text(imagenet, {"class_counts": [1280, *[5] * 999], "images": 115845}) is not None


def test_records_of_version_0_1_0_are_read(tmp_path: Path) -> None:
    """Their recipes have settings that were renamed later, and one of them is older than the answers in records."""
    shutil.copytree(Path(__file__).parent / "stored", tmp_path, dirs_exist_ok=True)
    table = reproduce_table("table2", tmp_path, tier="short", rows=["ce", "ce-drw"], max_hours=0).table
    assert (table["changed_settings"], table["stand_ins"]) == ({}, {})
    accuracies = {
        (cell["row"], cell["column"]): cell["points"]["full"]["accuracy"]["mean"]
        for cell in table["cells"]
        if cell["n"]
    }
    assert accuracies == {
        ("ce", "cifar10-lt-100"): 0.6409,
        ("ce", "cifar100-lt-100"): 0.3029,
        ("ce-drw", "cifar100-lt-100"): 0.3463,
    }
    assert table["shared_trainings"] == [{"row": "CE+DRW", "of": "CE", "epochs": 32, "runs": None}]
    (gain,) = table["differences"]
    assert (gain["row"], gain["against"], gain["column"]) == ("ce-drw", "ce", "cifar100-lt-100")
    assert gain["all"]["mean"] == pytest.approx(0.3463 - 0.3029)
