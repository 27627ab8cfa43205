"""Bundles appear whole, replace only bundles, and hold no clock."""

import zipfile
from pathlib import Path

import pytest

from elfnet import atomic
from elfnet.errors import RequestError, WorkError
from elfnet.inference.bundle.archive import require_writable, write_bundle
from elfnet.inference.bundle.read import open_bundle

Files = dict[str, bytes]


def test_the_same_files_give_the_same_bytes(tmp_path: Path, files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    write_bundle(tmp_path / "a.elfnet", files, as_directory=False)
    monkeypatch.setattr("time.time", lambda: 2e9)
    backwards = dict(reversed(files.items()))
    write_bundle(tmp_path / "b.elfnet", backwards, as_directory=False)
    assert (tmp_path / "a.elfnet").read_bytes() == (tmp_path / "b.elfnet").read_bytes()


@pytest.mark.parametrize("as_directory", [False, True])
def test_replacing_a_bundle(tmp_path: Path, files: Files, as_directory: bool) -> None:
    path = tmp_path / "new" / "it.elfnet"
    write_bundle(path, files, as_directory=as_directory)
    with pytest.raises(RequestError, match="exists; give --overwrite"):
        require_writable(path, as_directory=as_directory, overwrite=False)
    require_writable(path, as_directory=as_directory, overwrite=True)
    write_bundle(path, files, as_directory=as_directory)
    assert len(open_bundle(path).graphs) == 3
    assert list(path.parent.iterdir()) == [path]


def fail(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(("as_directory", "step"), [(False, "writestr"), (True, "write_bytes"), (True, "rename")])
def test_a_failed_write_leaves_the_old_bundle(
    tmp_path: Path, files: Files, monkeypatch: pytest.MonkeyPatch, as_directory: bool, step: str
) -> None:
    path = tmp_path / "it.elfnet"
    write_bundle(path, files, as_directory=as_directory)
    rename = Path.rename

    def fail_on_the_new_one(self: Path, target: Path) -> Path:
        if self.name == "new":
            fail()
        return rename(self, target)

    with monkeypatch.context() as broken:
        if step == "writestr":
            broken.setattr(zipfile.ZipFile, "writestr", fail)
        elif step == "write_bytes":
            broken.setattr(atomic, "write_bytes", fail)
        else:
            broken.setattr(Path, "rename", fail_on_the_new_one)
        with pytest.raises(WorkError, match="No space left"):
            write_bundle(path, {**files, "manifest.json": b"{}"}, as_directory=as_directory)
    assert len(open_bundle(path).graphs) == 3
    assert list(tmp_path.iterdir()) == [path]


def test_other_things_are_never_replaced(tmp_path: Path, files: Files) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    (photos / "a.png").touch()
    with pytest.raises(RequestError, match="holds other files than a bundle"):
        require_writable(photos, as_directory=True, overwrite=True)
    with pytest.raises(RequestError, match="is a directory"):
        require_writable(photos, as_directory=False, overwrite=True)
    with pytest.raises(RequestError, match="holds other files than a bundle"):
        require_writable(photos / "a.png", as_directory=True, overwrite=True)
    write_bundle(tmp_path / "it", files, as_directory=True)
    (tmp_path / "it" / "thesis.tex").touch()
    with pytest.raises(RequestError, match="holds other files than a bundle"):
        require_writable(tmp_path / "it", as_directory=True, overwrite=True)
    (tmp_path / "link").symlink_to(photos)
    with pytest.raises(RequestError, match="holds other files than a bundle"):
        require_writable(tmp_path / "link", as_directory=True, overwrite=True)
    with pytest.raises(RequestError, match="exists"):
        require_writable(tmp_path / "link", as_directory=True, overwrite=False)


def test_an_empty_directory_may_be_used(tmp_path: Path, files: Files) -> None:
    (tmp_path / "it").mkdir()
    require_writable(tmp_path / "it", as_directory=True, overwrite=True)
    write_bundle(tmp_path / "it", files, as_directory=True)
    assert len(open_bundle(tmp_path / "it").graphs) == 3
