"""A run directory, and refusing what is not one."""

from pathlib import Path

import pytest
from run_files import run_info

from elfnet.errors import RequestError
from elfnet.recipe.load import load_recipe
from elfnet.run.directory import RunDirectory, open_run

RECIPE = load_recipe("digits/elf-ce-drw", {"train.epochs": 3})


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = RunDirectory(tmp_path / "run")
    run.create(RECIPE, run_info())
    return run


def test_what_was_created_is_read_back(run: RunDirectory) -> None:
    again = open_run(str(run.root))
    assert again == run
    assert again.exists()
    assert again.recipe() == RECIPE
    assert again.info() == run_info()
    assert again.log() == ()


def test_every_file_has_its_own_place(run: RunDirectory) -> None:
    files = [
        run.recipe_file,
        run.info_file,
        run.log_file,
        run.policy_file,
        run.metrics_file,
        run.report_file,
        *(run.checkpoint(which) for which in ("last", "best")),
        *(run.table(split, which) for split in ("train", "calibration", "test") for which in ("last", "best")),
    ]
    assert len(set(files)) == len(files)
    assert all(file.is_relative_to(run.root) for file in files)


def test_a_directory_is_a_run_only_when_it_is_complete(tmp_path: Path) -> None:
    """The recipe is written last, so that a kill while creating does not leave half a run."""
    run = RunDirectory(tmp_path / "run")
    run.info_file.parent.mkdir()
    run.info_file.write_text("{}")
    assert not run.exists()
    with pytest.raises(RequestError, match=r"is not a run directory: it has no recipe\.toml"):
        open_run(run.root)


def test_a_missing_directory_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"there is no run directory .*; 'elfnet train --out .*' creates one"):
        open_run(tmp_path / "no")


def test_an_unknown_checkpoint_is_one_line(run: RunDirectory) -> None:
    with pytest.raises(RequestError, match="checkpoint 'first' does not exist; choose from: last, best"):
        run.checkpoint("first")
