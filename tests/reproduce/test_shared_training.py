"""Rows with the same training share it, and end with the same weights as if each were trained alone."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from run_files import epoch_record, run_info
from safetensors.torch import load_file

from elfnet.recipe.load import load_recipe
from elfnet.reproduce.cell import Cell, cell_recipe
from elfnet.reproduce.directory import TableDirectory
from elfnet.reproduce.paper_table import TIERS, load_table
from elfnet.reproduce.run import Outcome, reproduce_table
from elfnet.reproduce.shared_training import start_from_shared
from elfnet.run.directory import RunDirectory
from elfnet.run.log import write_log
from elfnet.train.run import train_recipe

COLUMN = "cifar10-lt-100"
JOINT, ENTROPY = "joint-ce-drw", "branchynet"
LABEL = "All exits, no training rule (CE)+DRW"


def run_of(out: Path, row: str) -> RunDirectory:
    return RunDirectory(out / COLUMN / row / "seed0")


def assert_equal_weights(first: Path, second: Path) -> None:
    left, right = load_file(first), load_file(second)
    assert left.keys() == right.keys()
    assert all(right[name].equal(tensor) for name, tensor in left.items())


@pytest.fixture(scope="module")
def both(tiny: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    out = tmp_path_factory.mktemp("shared")
    return out, reproduce_table("table2", out, rows=[JOINT, ENTROPY], columns=[COLUMN], settings=tiny)


def test_the_second_row_has_the_weights_of_the_first_and_its_own_confidence(both: tuple[Path, Outcome]) -> None:
    out, outcome = both
    assert (outcome.done, outcome.failed) == (2, {})
    joint, entropy = run_of(out, JOINT), run_of(out, ENTROPY)
    assert entropy.checkpoint("last").read_bytes() == joint.checkpoint("last").read_bytes()
    assert entropy.log() == joint.log()
    assert [run.recipe().exits.confidence for run in (joint, entropy)] == ["probability", "entropy"]
    assert joint.policy_file.read_text() != entropy.policy_file.read_text()


def test_the_table_has_a_note(both: tuple[Path, Outcome]) -> None:
    out, outcome = both
    assert outcome.table["shared_trainings"] == [{"row": "BranchyNet+DRW", "of": LABEL, "epochs": None, "runs": None}]
    assert "BranchyNet+DRW uses the weights of All exits, no training rule" in (out / "table.md").read_text()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (JOINT, ENTROPY),
        ("logit-adjusted", "balanced-softmax"),
        ("focal-drw", "focal"),
        ("ce", "ce-drw"),
    ],
)
def test_training_alone_gives_the_same_weights(first: str, second: str, tiny: dict[str, Any], tmp_path: Path) -> None:
    together, alone = tmp_path / "together", tmp_path / "alone"
    outcome = reproduce_table("table2", together, rows=[first, second], columns=[COLUMN], settings=tiny)
    assert len(outcome.table["shared_trainings"]) == 1
    assert reproduce_table("table2", alone, rows=[second], columns=[COLUMN], settings=tiny).done == 1
    assert run_of(alone, second).info().training_of is None
    for checkpoint in ("last", "best"):
        assert_equal_weights(*(run_of(out, second).checkpoint(checkpoint) for out in (together, alone)))


@pytest.mark.parametrize(
    ("settings", "seed"),
    [
        ({"exits.rule": "elf"}, 0),
        ({"criterion.loss": "balanced-softmax", "criterion.reweight": "none"}, 0),
        ({"train.seed": 1}, 0),
        ({"exits.confidence": "entropy"}, 1),
    ],
    ids=["another rule", "another loss", "another training seed", "another seed of the table"],
)
def test_another_training_is_not_shared(settings: dict[str, Any], seed: int, tmp_path: Path) -> None:
    table, directory = load_table("table2"), TableDirectory(tmp_path)
    joint = Cell(table.row(JOINT), table.column(COLUMN), seed)
    recipe = load_recipe("digits/joint-ce-drw")
    directory.run(joint).create(recipe, run_info())
    (directory.run(joint).root / "checkpoints").mkdir()
    directory.run(joint).log_file.touch()
    entropy = Cell(table.row(ENTROPY), table.column(COLUMN), 0)
    start_from_shared(entropy, load_recipe("digits/joint-ce-drw", settings), directory, [joint])
    assert not directory.run(entropy).root.exists()


def test_only_the_epochs_that_differ_are_trained(tiny: dict[str, Any], tmp_path: Path) -> None:
    request: dict[str, Any] = {"columns": [COLUMN], "settings": tiny}
    reproduce_table("table2", tmp_path, rows=["ce"], **request)
    outcome = reproduce_table("table2", tmp_path, rows=["ce-drw"], **request)
    plain, weighted = run_of(tmp_path, "ce").log(), run_of(tmp_path, "ce-drw").log()
    # A log record includes the seconds of its epoch, so equal records are of the same epoch.
    assert weighted[0] == plain[0]
    assert weighted[1] != plain[1]
    assert [epoch.weights for epoch in weighted] == ["none", "effective"]
    assert outcome.table["shared_trainings"] == [{"row": "CE+DRW", "of": "CE", "epochs": 1, "runs": None}]
    assert "CE+DRW shares its first epoch with CE" in (tmp_path / "table.md").read_text()


def test_an_unfinished_run_shares_its_first_epochs(tiny: dict[str, Any], tmp_path: Path) -> None:
    request: dict[str, Any] = {"columns": [COLUMN], "settings": tiny}
    answers = iter([False, True, True])
    assert reproduce_table("table2", tmp_path, rows=["ce"], stop=lambda: next(answers), **request).stopped
    outcome = reproduce_table("table2", tmp_path, rows=["ce-drw"], **request)
    assert (outcome.done, run_of(tmp_path, "ce-drw").info().epochs_taken_over) == (1, 1)


def test_a_second_stage_follows_the_finished_training_of_another_row(
    filled: tuple[Path, Outcome], tiny: dict[str, Any], tmp_path: Path
) -> None:
    table = load_table("table2")
    plain = Cell(table.row("ce"), table.column(COLUMN), 0)
    refitted = Cell(plain.row.model_copy(update={"name": "ce-two-stages"}), plain.column, 0)
    two_stages = {**tiny, "refit.method": "balanced", "refit.epochs": 1}
    recipe = cell_recipe(refitted, TIERS["smoke"], two_stages)
    directory = TableDirectory(tmp_path)
    shutil.copytree(TableDirectory(filled[0]).run(plain).root, directory.run(plain).root)
    start_from_shared(refitted, recipe, directory, [plain])
    shared, alone = directory.run(refitted), RunDirectory(tmp_path / "alone")
    assert (shared.info().training_of, shared.info().epochs_taken_over) == ("ce", 2)
    train_recipe(recipe, shared.root, resume=True)
    train_recipe(recipe, alone.root)
    assert len(shared.log()) == 3
    assert_equal_weights(shared.checkpoint("last"), alone.checkpoint("last"))


def test_rows_that_start_from_different_rows_share_nothing(tmp_path: Path) -> None:
    table, directory = load_table("table2"), TableDirectory(tmp_path)
    crt = Cell(table.row("crt"), table.column(COLUMN), 0)
    other = Cell(crt.row.model_copy(update={"name": "crt-of-drw", "starts_from": "ce-drw"}), crt.column, 0)
    recipe = load_recipe("digits/crt", {"refit.run": "run", "train.epochs": 1})
    run = directory.run(crt)
    run.create(recipe, run_info())
    (run.root / "checkpoints").mkdir()
    write_log(run.log_file, [epoch_record(0)])
    start_from_shared(other, recipe, directory, [crt])
    assert not directory.run(other).exists()
    same = Cell(crt.row.model_copy(update={"name": "crt-again"}), crt.column, 0)
    start_from_shared(same, recipe, directory, [crt])
    assert directory.run(same).exists()


def test_settings_that_are_not_valid_for_another_row_are_accepted(tiny: dict[str, Any], tmp_path: Path) -> None:
    settings = {**tiny, "criterion.reweight": "inverse"}
    assert reproduce_table("table2", tmp_path, rows=["ce"], columns=[COLUMN], settings=settings).done == 1
