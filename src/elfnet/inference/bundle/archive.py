"""Read the files of a bundle of version 0.1.0, which is a zip or a directory.

A bundle is not trusted: nothing is unpacked, and no link is followed. Opening refuses names that point outside the
bundle, links, duplicates, encryption, and a zip whose declared content is many times its own size.
"""

import os
import stat
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol

from elfnet.errors import RequestError, WorkError

MAX_MEMBERS = 1000
MAX_ZIP_RATIO = 100
"""Largest ratio of the declared content of a zip to its own size; weights hardly compress."""


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
