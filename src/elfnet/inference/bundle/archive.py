"""Read and write the files of a bundle, which is a zip or a directory.

A bundle is not trusted: nothing is unpacked, and no link is followed. Opening refuses names that point outside the
bundle, links, duplicates, encryption, and a zip whose declared content is many times its own size. Writing is atomic
and gives the same bytes for the same files.
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
MAX_ZIP_RATIO = 100
"""Largest ratio of the declared content of a zip to its own size; weights hardly compress."""
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""Date of every zip entry, the earliest possible: the bytes do not depend on the time of writing."""


class Members(Protocol):
    """The files of an open bundle: their sizes by name, and their content."""

    @property
    def sizes(self) -> dict[str, int]:
        """Size in bytes by name."""
        ...

    def open(self, name: str) -> BinaryIO:
        """Open a file for reading."""
        ...


class ZipMembers:
    """The files of a bundle that is a zip."""

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
                raise WorkError(f"{where}: {name!r} is encrypted or uses an unknown compression; export the run again")
            self.sizes[name] = entry.file_size
        if sum(self.sizes.values()) > MAX_ZIP_RATIO * total_bytes:
            raise WorkError(
                f"{where} declares more than {MAX_ZIP_RATIO} times its own size as content; export the run again"
            )

    def open(self, name: str) -> BinaryIO:
        # Reads at most the declared number of bytes, and checks the CRC after the last one.
        return self._archive.open(name)  # type: ignore[return-value]


class DirectoryMembers:
    """The files of a bundle that is a directory."""

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
    """Refuse a name that could point outside the bundle: absolute, with a drive, `..` or backslashes."""
    parts = name.split("/")
    if "\\" in name or ":" in name or any(part in ("", ".", "..") for part in parts) or not name.isprintable():
        raise WorkError(f"{where}: the name {name!r} points outside the bundle or is not plain; do not use this file")


@contextmanager
def open_members(path: Path, *, marker: str) -> Iterator[Members]:
    """Open a bundle and check names and kinds of its files, but not their content.

    Args:
        path: A zip or a directory.
        marker: The file that a directory must contain to be a bundle.

    Raises:
        RequestError: There is no bundle at `path`.
        WorkError: The bundle cannot be read, is damaged, or contains something that a bundle must not.
    """
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
    except (
        zipfile.BadZipFile,
        zipfile.LargeZipFile,
        zlib.error,
        EOFError,
        NotImplementedError,
        UnicodeDecodeError,
    ) as error:
        raise WorkError(
            f"{path} is not a bundle, or is truncated or damaged ({error}); export the run again"
        ) from error
    except OSError as error:
        raise WorkError(f"cannot read {path}: {error.strerror or error}") from error


def require_writable(path: Path, *, as_directory: bool, overwrite: bool) -> None:
    """Refuse a path that exists, unless `overwrite` is given and the path is a file or holds only a bundle."""
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
    """Refuse to replace a directory, unless it is empty or holds a bundle and nothing else."""
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
    raise RequestError(f"{path} holds other files than a bundle and is not replaced; name another --out")


def write_bundle(path: Path, files: Mapping[str, bytes], *, as_directory: bool) -> None:
    """Write files by name as one zip or as a directory, and replace what was at `path` when all are written."""
    if as_directory:
        _write_directory(path, files)
    else:
        atomic.write_with(path, lambda temporary: _write_zip(temporary, files))


def _write_zip(path: Path, files: Mapping[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        # The manifest comes first, the others sorted by name.
        for name in sorted(files, key=lambda name: (name != MANIFEST, name)):
            entry = zipfile.ZipInfo(name, date_time=_EPOCH)
            # Weights hardly compress; without compression the bytes do not depend on the version of zlib.
            entry.compress_type = zipfile.ZIP_STORED
            entry.create_system = 3  # Unix, on every platform
            entry.external_attr = (stat.S_IFREG | 0o644) << 16
            archive.writestr(entry, files[name])


def _write_directory(path: Path, files: Mapping[str, bytes]) -> None:
    staging: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic.remove_leftovers(path)
        staging = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=atomic.PART, dir=path.parent))
        complete = staging / "new"
        complete.mkdir()
        for name, content in files.items():
            atomic.write_bytes(complete / name, content)
        # A rename cannot replace a directory that is not empty: move the old one away first, and back if the second
        # rename fails.
        aside = staging / "old"
        if path.is_dir():
            path.rename(aside)
        try:
            complete.rename(path)
        except OSError:
            if aside.is_dir():
                aside.rename(path)
            raise
        atomic.sync_directory(path.parent)
    except OSError as error:
        raise WorkError(f"cannot write {path}: {error.strerror or error}; what was there is intact") from error
    finally:
        if staging is not None:
            shutil.rmtree(staging, ignore_errors=True)
