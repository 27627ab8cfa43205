"""The files inside a bundle, zip or directory, looked at without trust: nothing is unpacked, linked or followed.

What could surprise is refused on opening: names that climb out, links, duplicates, encryption, and a zip that claims
to hold many times its own size.
"""

import os
import shutil
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol

from elfnet import atomic
from elfnet.errors import ElfnetError, RequestError, WorkError
from elfnet.inference.bundle.manifest_file import MANIFEST, MAX_MANIFEST_BYTES, read_manifest

MAX_MEMBERS = 1000
LARGEST_RATIO = 100
"""A zip may claim to hold this many times its own size; weights hardly shrink at all."""


class Members(Protocol):
    """Names and sizes of the files, and their bytes."""

    @property
    def sizes(self) -> dict[str, int]: ...

    def open(self, name: str) -> BinaryIO: ...


class ZipMembers:
    def __init__(self, archive: zipfile.ZipFile, where: str, total_bytes: int) -> None:
        self._archive = archive
        self.sizes: dict[str, int] = {}
        entries = archive.infolist()
        if len(entries) > MAX_MEMBERS:
            raise WorkError(f"{where} has {len(entries)} files, a bundle has at most {MAX_MEMBERS}; export it again")
        for entry in entries:
            name = entry.filename
            require_plain_name(name.removesuffix("/"), where)
            kind = stat.S_IFMT(entry.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise WorkError(f"{where}: {name!r} is a link or special file; a bundle holds plain files only")
            if entry.is_dir():
                continue
            if name in self.sizes:
                raise WorkError(f"{where} holds {name!r} twice; export the run again")
            if entry.flag_bits & 0x1 or entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise WorkError(f"{where}: {name!r} is encrypted or packed in an unknown way; export the run again")
            self.sizes[name] = entry.file_size
        if sum(self.sizes.values()) > LARGEST_RATIO * total_bytes:
            raise WorkError(f"{where} claims to hold over {LARGEST_RATIO} times its own size; export the run again")

    def open(self, name: str) -> BinaryIO:
        # Gives at most as many bytes as the directory of the zip declares, and checks the CRC after the last.
        return self._archive.open(name)  # type: ignore[return-value]


class DirectoryMembers:
    def __init__(self, root: Path) -> None:
        self._root = root
        self.sizes: dict[str, int] = {}
        for path in _files_below(root):
            found = path.lstat()
            name = path.relative_to(root).as_posix()
            if not stat.S_ISREG(found.st_mode):
                raise WorkError(f"{root}: {name!r} is a link or special file; a bundle holds plain files only")
            self.sizes[name] = found.st_size
            if len(self.sizes) > MAX_MEMBERS:
                raise WorkError(f"{root} has over {MAX_MEMBERS} files; name the bundle itself")

    def open(self, name: str) -> BinaryIO:
        return (self._root / name).open("rb")


def _files_below(folder: Path) -> Iterator[Path]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _files_below(Path(entry.path))
            else:
                yield Path(entry.path)


def require_plain_name(name: str, where: str) -> None:
    """Refuse a name that could mean a place outside: absolute, with a drive, `..`, or backslashes."""
    parts = name.split("/")
    if "\\" in name or ":" in name or any(part in ("", ".", "..") for part in parts) or not name.isprintable():
        raise WorkError(f"{where}: the name {name!r} climbs out of the bundle or is not plain; do not use this file")


@contextmanager
def open_members(path: Path, *, marker: str) -> Iterator[Members]:
    """The files of a bundle; `marker` is the one that a directory must have to be taken for a bundle."""
    try:
        if path.is_dir():
            if not (path / marker).is_file():
                raise RequestError(f"{path} is not a bundle: it has no {marker}; make one with 'elfnet export RUN'")
            yield DirectoryMembers(path)
            return
        if not path.exists():
            raise RequestError(f"there is no bundle {path}; 'elfnet export RUN --out {path}' makes one")
        if not path.is_file():
            raise RequestError(f"{path} is not a file; name a bundle")
        with zipfile.ZipFile(path) as archive:
            yield ZipMembers(archive, str(path), path.stat().st_size)
    except (zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise WorkError(
            f"{path} is not a bundle, or is truncated or damaged ({error}); export the run again"
        ) from error
    except OSError as error:
        raise WorkError(f"cannot read {path}: {error.strerror or error}") from error


# The first moment that a zip can name: no clock in the bytes.
_EPOCH = (1980, 1, 1, 0, 0, 0)


def require_place(path: Path, *, as_directory: bool, overwrite: bool) -> None:
    """Refuse to write over what is there, unless asked to and unless it is not a bundle."""
    if not os.path.lexists(path):
        return
    if not overwrite:
        raise RequestError(f"{path} exists; give --overwrite, or another --out")
    if path.is_dir() and not as_directory:
        raise RequestError(f"{path} is a directory; name a file, or give --directory")
    if as_directory:
        _require_bundle_directory(path)
    elif not path.is_file():
        raise RequestError(f"{path} is not a regular file; name another --out")


def _require_bundle_directory(path: Path) -> None:
    """Only a directory that holds a bundle and nothing else is ever replaced."""
    if path.is_dir() and not path.is_symlink():
        if not any(path.iterdir()):
            return
        try:
            with open_members(path, marker=MANIFEST) as members, members.open(MANIFEST) as file:
                listed = read_manifest(file.read(MAX_MANIFEST_BYTES), where=str(path)).files.keys() | {MANIFEST}
                if members.sizes.keys() <= listed:
                    return
        except ElfnetError:
            pass
    raise RequestError(f"{path} holds other things than a bundle and is not replaced; name another --out")


def write_bundle(path: Path, files: Mapping[str, bytes], *, as_directory: bool) -> None:
    """Write the files as one zip, or as a directory; what was at `path` stays until the new bundle is complete."""
    if as_directory:
        _write_directory(path, files)
    else:
        atomic.write_with(path, lambda temporary: _write_zip(temporary, files))


def _write_zip(path: Path, files: Mapping[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        # The manifest first, then by name.
        for name in sorted(files, key=lambda name: (name != MANIFEST, name)):
            entry = zipfile.ZipInfo(name, date_time=_EPOCH)
            # Weights do not shrink; stored as they are, no version of a compressor changes the bytes.
            entry.compress_type = zipfile.ZIP_STORED
            entry.create_system = 3  # Unix, wherever this runs
            entry.external_attr = (stat.S_IFREG | 0o644) << 16
            archive.writestr(entry, files[name])


def _write_directory(path: Path, files: Mapping[str, bytes]) -> None:
    staging: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent))
        complete = staging / "new"
        complete.mkdir()
        for name, content in files.items():
            atomic.write_bytes(complete / name, content)
        # A directory cannot take the place of a full one in one step: the old one steps aside first, and comes back
        # if the new one cannot be put there.
        aside = staging / "old"
        if path.is_dir():
            path.rename(aside)
        try:
            complete.rename(path)
        except OSError:
            if aside.is_dir():
                aside.rename(path)
            raise
    except OSError as error:
        raise WorkError(f"cannot write {path}: {error.strerror or error}; what was there is intact") from error
    finally:
        if staging is not None:
            shutil.rmtree(staging, ignore_errors=True)
