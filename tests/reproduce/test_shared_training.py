"""Rows that are trained alike: one training for both, and the same weights as if each had its own."""

from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from elfnet.checkpoint.run_directory import RunDirectory
from elfnet.recipe.load import load_recipe
from elfnet.reproduce.cell import Cell
from elfnet.reproduce.directory import TableDirectory
from elfnet.reproduce.paper_table import load_table
from elfnet.reproduce.run_table import Outcome, reproduce_table
from elfnet.reproduce.shared_training import take_over_training

COLUMN = "cifar10-lt-100"
JOINT, ENTROPY = "joint-ce-drw", "branchynet"


def run_of(out: Path, row: str) -> RunDirectory:
    return RunDirectory(out / COLUMN / row / "seed0")


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
    assert list(outcome.table["shared_trainings"]) == ["BranchyNet+DRW"]
    assert "BranchyNet+DRW has the weights of All exits, no training rule" in (out / "table.md").read_text()


@pytest.mark.parametrize(("first", "second"), [(JOINT, ENTROPY), ("logit-adjusted", "balanced-softmax")])
def test_a_training_of_its_own_ends_with_the_same_weights(
    first: str, second: str, tiny: dict[str, Any], tmp_path: Path
) -> None:
    together, alone = tmp_path / "together", tmp_path / "alone"
    outcome = reproduce_table("table2", together, rows=[first, second], columns=[COLUMN], settings=tiny)
    assert len(outcome.table["shared_trainings"]) == 1
    assert reproduce_table("table2", alone, rows=[second], columns=[COLUMN], settings=tiny).done == 1
    assert "training_of" not in run_of(alone, second).info()
    shared, own = (load_file(run_of(out, second).checkpoint("last")) for out in (together, alone))
    assert shared.keys() == own.keys()
    assert all(own[name].equal(tensor) for name, tensor in shared.items())


@pytest.mark.parametrize(
    ("settings", "seed"),
    [
        ({"exits.rule": "elf"}, 0),
        ({"criterion.loss": "balanced-softmax", "criterion.reweight": "none"}, 0),
        ({"train.seed": 1}, 0),
        ({}, 0),
        ({"exits.confidence": "entropy"}, 1),
    ],
    ids=["another rule", "another loss", "another seed of the training", "the same row", "another seed of the table"],
)
def test_what_differs_in_training_or_not_at_all_is_not_taken_over(
    settings: dict[str, Any], seed: int, tmp_path: Path
) -> None:
    table, directory = load_table("table2"), TableDirectory(tmp_path)
    joint = Cell(table.row(JOINT), table.column(COLUMN), seed)
    recipe = load_recipe("digits/joint-ce-drw")
    directory.run(joint).create(recipe, {})
    (directory.run(joint).root / "checkpoints").mkdir()
    directory.run(joint).log_file.touch()
    entropy = Cell(table.row(ENTROPY), table.column(COLUMN), 0)
    take_over_training(entropy, load_recipe("digits/joint-ce-drw", settings), directory, [joint])
    assert not directory.run(entropy).root.exists()
