"""A reader sees the old content or the new, never a part of either."""

import errno
import json
import os
import stat
from pathlib import Path

import pytest

from elfnet import atomic
from elfnet.errors import WorkError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "kept.txt"
    path.write_text("old")
    return path


def _fail(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_new_content_replaces_old_and_leaves_nothing_else(file: Path) -> None:
    atomic.write_text(file, "näu")
    assert file.read_bytes() == "näu".encode()
    assert list(file.parent.iterdir()) == [file]


def test_directories_are_made(tmp_path: Path) -> None:
    atomic.write_bytes(tmp_path / "a" / "b" / "c", b"\x00\xff")
    assert (tmp_path / "a" / "b" / "c").read_bytes() == b"\x00\xff"


@pytest.mark.parametrize("step", ["os.replace", "os.fsync", "pathlib.Path.write_bytes", "tempfile.mkstemp"])
def test_a_full_disk_leaves_the_old_file_and_no_part_of_the_new(
    step: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step, _fail)
    with pytest.raises(WorkError) as caught:
        atomic.write_text(file, "new")
    assert str(caught.value) == f"cannot write {file}: No space left on device; the previous file, if any, is intact"
    assert file.read_text() == "old"
    assert list(file.parent.iterdir()) == [file]


def test_a_writer_that_fails_half_way_leaves_the_old_file(file: Path) -> None:
    def write(temporary: Path) -> None:
        temporary.write_text("ne")
        _fail()

    with pytest.raises(WorkError, match="No space left on device"):
        atomic.write_with(file, write)
    assert file.read_text() == "old"
    assert list(file.parent.iterdir()) == [file]


def test_an_interruption_passes_through_and_leaves_nothing(file: Path) -> None:
    def write(temporary: Path) -> None:
        temporary.write_text("ne")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        atomic.write_with(file, write)
    assert file.read_text() == "old"
    assert list(file.parent.iterdir()) == [file]


def test_a_directory_that_cannot_be_made_is_one_line(file: Path) -> None:
    with pytest.raises(WorkError, match=r"cannot write .*/kept\.txt/inside") as caught:
        atomic.write_text(file / "inside", "new")
    assert "\n" not in str(caught.value)
    assert file.read_text() == "old"


def test_files_get_ordinary_permissions(file: Path) -> None:
    umask = os.umask(0o022)
    try:
        atomic.write_text(file, "new")
    finally:
        os.umask(umask)
    assert stat.S_IMODE(file.stat().st_mode) == 0o644


def test_json_is_readable_by_everybody(file: Path) -> None:
    atomic.write_json(file, {"a": [1, 2.5, None]})
    assert json.loads(file.read_text()) == {"a": [1, 2.5, None]}
    with pytest.raises(ValueError, match="JSON compliant"):
        atomic.write_json(file, {"a": float("nan")})
    assert json.loads(file.read_text()) == {"a": [1, 2.5, None]}
    assert list(file.parent.iterdir()) == [file]


def test_leftovers_of_a_killed_write_are_removed_by_the_next(file: Path) -> None:
    names = [
        ".kept.txt.ab12_x.part",
        ".kept.txt.part",
        ".other.txt.ab12.part",
        ".kept.txt.old.ab12.part",
        "kept.txt.part",
    ]
    for name in names:
        (file.parent / name).write_text("part")
    (file.parent / ".kept.txt.dir9.part").mkdir()
    (file.parent / ".kept.txt.dir9.part" / "new").touch()
    atomic.write_text(file, "new")
    assert sorted(path.name for path in file.parent.iterdir()) == sorted([*names[1:], "kept.txt"])


def test_a_file_that_is_being_written_is_no_leftover(file: Path) -> None:
    with atomic.replacing(file) as outer:
        outer.write_text("outer")
        atomic.write_text(file, "inner")
        assert file.read_text() == "inner"
    assert file.read_text() == "outer"
    assert list(file.parent.iterdir()) == [file]


def test_the_directory_is_flushed_after_the_rename(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[tuple[bool, str]] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        flushed.append((stat.S_ISDIR(os.fstat(descriptor).st_mode), file.read_text()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    atomic.write_text(file, "new")
    assert flushed == [(False, "old"), (True, "new")]
