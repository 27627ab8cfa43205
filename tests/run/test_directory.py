"""A run directory, and refusing what is not one."""

from pathlib import Path

import pytest
from run_files import run_info

from elfnet.errors import RequestError, WorkError
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
    (tmp_path / "file.onnx").touch()
    with pytest.raises(RequestError, match=r"file\.onnx is a file; name the run directory"):
        open_run(tmp_path / "file.onnx")


def test_an_unknown_checkpoint_is_one_line(run: RunDirectory) -> None:
    with pytest.raises(RequestError, match="checkpoint 'first' does not exist; choose from: last, best"):
        run.checkpoint("first")


@pytest.mark.parametrize(
    ("left", "free"),
    [
        ([], True),
        (["run.json"], True),
        ([".run.json.abc123.part"], True),
        (["run.json", ".recipe.toml.abc123.part"], True),
        (["recipe.toml", "run.json"], False),
        (["run.json", "thesis.txt"], False),
        (["run.json", "log.jsonl"], False),
    ],
)
def test_what_a_killed_create_left_is_free_for_a_run(tmp_path: Path, left: list[str], free: bool) -> None:
    for name in left:
        (tmp_path / name).touch()
    assert RunDirectory(tmp_path).is_free() == free
    assert RunDirectory(tmp_path / "new").is_free()
    (tmp_path / "file").touch()
    assert not RunDirectory(tmp_path / "file").is_free()


def test_a_removal_that_was_killed_is_finished_under_the_next_lock(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(_path: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("shutil.rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            run.remove()
    # Nothing of the run is left where it was: no half of it can be taken for a run.
    assert not run.root.exists()
    (hidden,) = run.root.parent.iterdir()
    assert hidden.name == ".run.removed.part"
    with run.lock():
        assert not hidden.exists()


def test_a_directory_that_cannot_be_removed_is_one_line(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(*_: object) -> None:
        raise OSError(16, "Device or resource busy")

    monkeypatch.setattr(Path, "rename", busy)
    with pytest.raises(WorkError, match=r"cannot remove .*/run: Device or resource busy; remove it yourself"):
        run.remove()


@pytest.mark.parametrize("content", ["[" * 10**5, '{"a": 1' + "0" * 400 + "}", '{"a": NaN}'])
def test_hostile_json_is_one_line(run: RunDirectory, content: str) -> None:
    run.info_file.write_text(content)
    with pytest.raises(WorkError, match=r"run\.json is damaged") as caught:
        run.info()
    assert "\n" not in str(caught.value)
