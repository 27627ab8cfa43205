"""Open and verify a bundle of version 0.1.0, a zip or a directory: every file is compared with its hash before its use.

A bundle is not trusted: nothing is unpacked, and no link is followed. Opening refuses names that point outside the
bundle, links, duplicates, encryption, and a zip whose declared content is many times its own size.

The graphs are used from the bytes that were hashed, so that no file can be exchanged in between. The hashes detect
damage and partial changes. They do not prove who wrote the bundle.
"""

import hashlib
import os
import stat
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from elfnet.calibrate.point_family import Family
from elfnet.errors import ElfnetError, RequestError, WorkError
from elfnet.inference.bundle.manifest import MANIFEST, MAX_MANIFEST_BYTES, File, Manifest, read_manifest
from elfnet.registry import unknown_name

_CHUNK = 2**20
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
                run = path if (path / "recipe.toml").is_file() else "RUN"
                raise RequestError(f"{path} is not a bundle: it has no {marker}; make one with 'elfnet export {run}'")
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


@dataclass(frozen=True, eq=False)
class Bundle:
    """A verified bundle.

    Attributes:
        path: Where it was read from.
        manifest: Its manifest.
        graphs: The ONNX graph of each stage with its head, in order.
        family: The operating points of these graphs.
    """

    path: Path
    manifest: Manifest
    graphs: tuple[bytes, ...]
    family: Family


def open_bundle(path: str | Path, *, variant: str = "float32") -> Bundle:
    """Read a bundle and verify all of its files.

    Args:
        path: A zip or a directory.
        variant: The variant whose graphs and operating points to return.

    Raises:
        RequestError: There is no bundle at `path`, or it has no such variant.
        WorkError: A file is missing, was added or altered, or contradicts another one.
    """
    path = Path(path)
    with open_members(path, marker=MANIFEST) as members:
        manifest = _read_manifest(members, str(path))
        if variant not in manifest.variants:
            raise unknown_name(f"variant of {path}:", variant, list(manifest.variants))
        chosen = manifest.variants[variant]
        kept = {
            name: _read_verified(members, name, file, str(path), keep=name in chosen.graphs)
            for name, file in manifest.files.items()
        }
    family = read_family(
        chosen.family,
        checkpoint_sha256=manifest.provenance.checkpoint_sha256,
        classes=len(manifest.class_names),
        exits=len(chosen.graphs),
        where=str(path),
    )
    return Bundle(path, manifest, tuple(kept[name] for name in chosen.graphs), family)


def read_file(bundle: Bundle, name: str) -> bytes:
    """Read and verify another file of an opened bundle."""
    with open_members(bundle.path, marker=MANIFEST) as members:
        if name not in members.sizes:
            raise WorkError(f"{bundle.path}: {name} is missing; export the run again")
        return _read_verified(members, name, bundle.manifest.files[name], str(bundle.path), keep=True)


def _read_manifest(members: Members, where: str) -> Manifest:
    if MANIFEST not in members.sizes:
        raise WorkError(f"{where} is not a bundle: it has no {MANIFEST}; make one with 'elfnet export RUN'")
    if members.sizes[MANIFEST] > MAX_MANIFEST_BYTES:
        raise WorkError(f"{where}: {MANIFEST} has over {MAX_MANIFEST_BYTES:,} bytes; export the run again")
    with members.open(MANIFEST) as file:
        manifest = read_manifest(file.read(MAX_MANIFEST_BYTES + 1), where=where)
    listed = {MANIFEST, *manifest.files}
    for name in sorted(listed ^ members.sizes.keys()):
        what = f"{name} is missing" if name in listed else f"{name!r} is not listed in {MANIFEST}"
        raise WorkError(f"{where}: {what}; export the run again")
    return manifest


def _read_verified(members: Members, name: str, expected: File, where: str, *, keep: bool) -> bytes:
    """Verify size and hash of a file, and return its bytes; empty bytes if `keep` is False."""
    way_out = "restore the bundle from a copy, or export the run again"
    if members.sizes[name] != expected.bytes:
        raise WorkError(f"{where}: {name} has {members.sizes[name]:,} bytes, not {expected.bytes:,}; {way_out}")
    digest, parts, left = hashlib.sha256(), [], expected.bytes
    with members.open(name) as file:
        # Read one byte more than expected, to detect a file that has grown or a zip with a wrong size.
        while chunk := file.read(min(_CHUNK, left + 1)):
            left -= len(chunk)
            digest.update(chunk)
            if keep:
                parts.append(chunk)
            if left < 0:
                break
    if left != 0 or digest.hexdigest() != expected.sha256:
        raise WorkError(f"{where}: {name} is damaged or was altered (its hash does not match); {way_out}")
    return b"".join(parts)


def read_family(content: dict[str, Any], *, checkpoint_sha256: str, classes: int, exits: int, where: str) -> Family:
    """Read the operating points of a bundle, and check that they belong to its network.

    Args:
        content: What `Family.to_dict` returned.
        checkpoint_sha256: Hash of the checkpoint of the network.
        classes: Number of classes of the network.
        exits: Number of exits of the network.
        where: Name of the bundle in error messages.

    Raises:
        WorkError: They do not belong to the network.
    """
    try:
        family = Family.from_dict(content)
        family.require_checkpoint(checkpoint_sha256)
    except (ElfnetError, KeyError, TypeError, ValueError) as error:
        reason = str(error).partition(";")[0]
        raise WorkError(f"{where}: the operating points are not for this network ({reason}); export again") from error
    if family.log_prior and len(family.log_prior) != classes:
        raise WorkError(
            f"{where} has {classes} classes, but its operating points adjust the logits of "
            f"{len(family.log_prior)}; export the run again"
        )
    if len(family.confidence_scale) != exits:
        raise WorkError(
            f"{where} has {exits} stages, but operating points for {len(family.confidence_scale)} exits; "
            "export the run again"
        )
    return family
