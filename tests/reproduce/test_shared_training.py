"""Rows that are trained alike: one training for both, and the same weights as if each had its own."""

from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from elfnet.recipe.load import load_recipe
from elfnet.reproduce.cell import Cell
from elfnet.reproduce.directory import TableDirectory
from elfnet.reproduce.paper_table import load_table
from elfnet.reproduce.run_table import Outcome, reproduce_table
from elfnet.reproduce.shared_training import take_over_training
from elfnet.run.directory import RunDirectory

COLUMN = "cifar10-lt-100"
JOINT, ENTROPY = "joint-ce-drw", "branchynet"
LABEL = "All exits, no training rule (CE)+DRW"


def run_of(out: Path, row: str) -> RunDirectory:
    return RunDirectory(out / COLUMN / row / "seed0")


def assert_equal_weights(one: Path, other: Path) -> None:
    left, right = load_file(one), load_file(other)
    assert left.keys() == right.keys()
    assert all(right[name].equal(tensor) for name, tensor in left.items())


@pytest.fixture(scope="module")
def both(tiny: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    out = tmp_path_factory.mktemp("shared")
    return out, reproduce_table("table2", out, rows=[JOINT, ENTROPY], columns=[COLUMN], settings=tiny)


def test_the_second_row_has_the_first_ones_training_and_its_own_rule(both: tuple[Path, Outcome]) -> None:
    out, outcome = both
    assert (outcome.done, outcome.failed) == (2, {})
    joint, entropy = run_of(out, JOINT), run_of(out, ENTROPY)
    assert entropy.checkpoint("last").read_bytes() == joint.checkpoint("last").read_bytes()
    assert entropy.log() == joint.log()
    assert [run.recipe().exits.confidence for run in (joint, entropy)] == ["probability", "entropy"]
    assert joint.policy_file.read_text() != entropy.policy_file.read_text()


def test_the_table_says_so(both: tuple[Path, Outcome]) -> None:
    out, outcome = both
    assert outcome.table["shared_trainings"] == [{"row": "BranchyNet+DRW", "of": LABEL, "epochs": None, "runs": None}]
    assert "BranchyNet+DRW has the weights of All exits, no training rule" in (out / "table.md").read_text()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (JOINT, ENTROPY),
        ("logit-adjusted", "balanced-softmax"),
        ("focal-drw", "focal"),
        ("ce", "ce-drw"),
    ],
)
def test_a_training_of_its_own_ends_with_the_same_weights(
    first: str, second: str, tiny: dict[str, Any], tmp_path: Path
) -> None:
    together, alone = tmp_path / "together", tmp_path / "alone"
    outcome = reproduce_table("table2", together, rows=[first, second], columns=[COLUMN], settings=tiny)
    assert len(outcome.table["shared_trainings"]) == 1
    assert reproduce_table("table2", alone, rows=[second], columns=[COLUMN], settings=tiny).done == 1
    assert "training_of" not in run_of(alone, second).info()
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
    ids=["another rule", "another loss", "another seed of the training", "another seed of the table"],
)
def test_what_differs_in_training_is_not_taken_over(settings: dict[str, Any], seed: int, tmp_path: Path) -> None:
    table, directory = load_table("table2"), TableDirectory(tmp_path)
    joint = Cell(table.row(JOINT), table.column(COLUMN), seed)
    recipe = load_recipe("digits/joint-ce-drw")
    directory.run(joint).create(recipe, {})
    (directory.run(joint).root / "checkpoints").mkdir()
    directory.run(joint).log_file.touch()
    entropy = Cell(table.row(ENTROPY), table.column(COLUMN), 0)
    take_over_training(entropy, load_recipe("digits/joint-ce-drw", settings), directory, [joint])
    assert not directory.run(entropy).root.exists()


def test_only_the_epochs_that_differ_are_trained(tiny: dict[str, Any], tmp_path: Path) -> None:
    asked: dict[str, Any] = {"columns": [COLUMN], "settings": tiny}
    reproduce_table("table2", tmp_path, rows=["ce"], **asked)
    outcome = reproduce_table("table2", tmp_path, rows=["ce-drw"], **asked)
    plain, weighted = run_of(tmp_path, "ce").log(), run_of(tmp_path, "ce-drw").log()
    # The record of an epoch has the seconds that it took: the same record is the same epoch, not one like it.
    assert weighted[0] == plain[0]
    assert weighted[1] != plain[1]
    assert [epoch["weights"] for epoch in weighted] == ["none", "effective"]
    assert outcome.table["shared_trainings"] == [{"row": "CE+DRW", "of": "CE", "epochs": 1, "runs": None}]
    assert "CE+DRW has its first 1 epochs from CE" in (tmp_path / "table.md").read_text()


def test_a_beginning_does_without_the_end(tiny: dict[str, Any], tmp_path: Path) -> None:
    """A run that was stopped, or goes on elsewhere, has its beginning all the same."""
    asked: dict[str, Any] = {"columns": [COLUMN], "settings": tiny}
    asked_for_stop = iter([False, True, True])
    assert reproduce_table("table2", tmp_path, rows=["ce"], stop=lambda: next(asked_for_stop), **asked).stopped
    outcome = reproduce_table("table2", tmp_path, rows=["ce-drw"], **asked)
    assert (outcome.done, run_of(tmp_path, "ce-drw").info()["epochs_taken_over"]) == (1, 1)


def test_settings_that_another_row_refuses_do_not_matter(tiny: dict[str, Any], tmp_path: Path) -> None:
    settings = {**tiny, "criterion.reweight": "inverse"}
    assert reproduce_table("table2", tmp_path, rows=["ce"], columns=[COLUMN], settings=settings).done == 1
