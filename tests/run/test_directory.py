"""A run directory, and refusing what is not one."""

import json
from pathlib import Path

import pytest

from elfnet.errors import RequestError, WorkError
from elfnet.recipe.load import load_recipe
from elfnet.run.directory import RunDirectory, open_run, read_json

RECIPE = load_recipe("digits/elf-ce-drw", {"train.epochs": 3})


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = RunDirectory(tmp_path / "run")
    run.create(RECIPE, {"seeds": {"training": 0}})
    return run


def test_what_was_created_is_read_back(run: RunDirectory) -> None:
    again = open_run(str(run.root))
    assert again == run
    assert again.exists()
    assert again.recipe() == RECIPE
    assert again.info() == {"seeds": {"training": 0}}
    assert again.log() == []


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


def test_the_log_is_one_record_a_line(run: RunDirectory) -> None:
    run.log_file.write_text('{"epoch": 0}\n{"epoch": 1}\n')
    assert [record["epoch"] for record in run.log()] == [0, 1]


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


@pytest.mark.parametrize("content", ["", "{", '{"a": ', "[1, 2]", "3"])
def test_a_damaged_json_file_is_one_line(tmp_path: Path, content: str) -> None:
    file = tmp_path / "run.json"
    file.write_text(content)
    with pytest.raises(WorkError, match=r"run\.json is damaged") as caught:
        read_json(file)
    assert "\n" not in str(caught.value)


def test_json_that_is_not_text_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(WorkError, match=r"run\.json is damaged"):
        read_json(file)


def test_a_missing_json_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(WorkError, match=r"cannot read .*run\.json: No such file or directory"):
        read_json(tmp_path / "run.json")


def test_a_log_that_a_kill_cut_short_is_read_up_to_there(run: RunDirectory) -> None:
    run.log_file.write_text('{"epoch": 0}\n{"epo')
    assert run.log() == [{"epoch": 0}]


def test_info_is_plain_json(run: RunDirectory) -> None:
    assert json.loads(run.info_file.read_text()) == run.info()


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
