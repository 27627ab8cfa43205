"""The directory of a table: what may be continued there, what is refused, and trainings that rows share.

Rows with the same training end with the same weights as if each were trained alone.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from run_files import epoch_record, run_info
from safetensors.torch import load_file

from elfnet.errors import RequestError
from elfnet.recipe.load import load_recipe
from elfnet.reproduce.cell import Cell, cell_recipe
from elfnet.reproduce.directory import TableDirectory, start_from_shared
from elfnet.reproduce.paper_table import TIERS, load_table
from elfnet.reproduce.run import Outcome, reproduce_table
from elfnet.run.directory import RunDirectory
from elfnet.run.log import write_log
from elfnet.train.run import train_recipe

COLUMN = "cifar10-lt-100"
COUNTS = {"train": (12, 6, 3), "val": (3, 3, 3), "test": (4, 4, 4)}
SMALL = {
    "model.backbone": "resnet10",
    "data.image_size": 32,
    "data.workers": 0,
    "train.batch_size": 12,
    "train.compile": "off",
    "train.threads": 1,
    "train.epochs": 1,
}


@pytest.mark.parametrize(
    ("table", "changes", "message"),
    [
        ("table2", {"settings": {"train.lr": 0.3}}, r"another recipe: train.lr=0.1, not 0.3; .*another --out"),
        ("table2", {"settings": {"train.epochs": 3}}, r"another recipe: train.epochs=2, not 3"),
        ("table2", {"tier": "short"}, "holds table2 at tier smoke, not table2 at tier short; give another --out"),
        ("table1", {"columns": []}, "holds table2 at tier smoke, not table1"),
    ],
)
def test_another_table_or_recipe_is_refused_before_anything_is_run(
    filled: tuple[Path, Outcome], tiny: dict[str, Any], table: str, changes: dict[str, Any], message: str
) -> None:
    # The requested row has no run; the runs of other rows would be in the same table.
    request: dict[str, Any] = {"rows": ["focal-drw" if table == "table2" else "ce"], "columns": [COLUMN], **changes}
    request["settings"] = {**tiny, **changes.get("settings", {})}
    with pytest.raises(RequestError, match=message):
        reproduce_table(table, filled[0], **request)
    assert not (filled[0] / COLUMN / "focal-drw").exists()


def test_a_directory_of_something_else_is_refused(tiny: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "table.json").write_text('{"over": []}')
    with pytest.raises(RequestError, match=r"table\.json was not written by 'elfnet reproduce'; give another --out"):
        reproduce_table("table2", tmp_path, rows=["ce"], settings=tiny)
    (tmp_path / "table.json").unlink()
    (tmp_path / "file").touch()
    with pytest.raises(RequestError, match="file is not a directory; give another --out"):
        reproduce_table("table2", tmp_path / "file", rows=["ce"], settings=tiny)


def write_images(root: Path, *, seed: int) -> None:
    """Write lists in the format of ImageNet-LT, and their images: noise around a grey value per class."""
    generator = np.random.default_rng(seed)
    for split, counts in COUNTS.items():
        lines = []
        for label, count in enumerate(counts):
            for number in range(count):
                path = root / "images" / split / f"class{label}" / f"{number}.jpg"
                path.parent.mkdir(parents=True, exist_ok=True)
                pixels = generator.integers(0, 60, (36, 40, 3)) + 60 * label
                Image.fromarray(pixels.astype(np.uint8)).save(path)
                lines.append(f"{path.relative_to(root).as_posix()} {label}\n")
        (root / f"ImageNet_LT_{split}.txt").write_text("".join(lines))


def test_data_may_move_but_not_change_and_a_stand_in_is_named(tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    write_images(data, seed=0)
    request: dict[str, Any] = {"tier": "short", "rows": ["ce"], "columns": ["imagenet-lt"]}

    def fill(root: Path | None) -> dict[str, Any]:
        settings = {**SMALL, **({} if root is None else {"data.root": str(root)})}
        return reproduce_table("table1", out, **request, settings=settings).table

    table = fill(data)
    cell = table["cells"][0]
    assert (cell["row"], cell["column"], cell["n"], cell["as_in_paper"]) == ("ce", "imagenet-lt", 1, False)
    text = (out / "table.md").read_text()
    assert "ImageNet-LT: a stand-in of 3 classes and 21 training images (12 to 3 per class); the real data set" in text
    assert "44.6\\*" in text
    published = [*out.glob("table.*"), *out.rglob("seed0.json")]
    assert str(tmp_path) not in "".join(file.read_text() for file in published)
    assert json.loads((out / "table.json").read_text()) == table
    # The same images in another directory are the same data; without a path the stored one is used.
    data.rename(tmp_path / "moved")
    assert fill(tmp_path / "moved") == table
    assert fill(None) == table
    write_images(tmp_path / "other", seed=1)
    (tmp_path / "other" / "ImageNet_LT_test.txt").write_text("images/test/class0/0.jpg 0\n")
    with pytest.raises(RequestError, match=r"other differs from the data that the run in .* was trained on"):
        fill(tmp_path / "other")


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


@pytest.mark.slow
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
