"""Writing a bundle: whole or not at all, and the same files always as the same bytes."""

import os
import shutil
import stat
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from elfnet import atomic
from elfnet.deploy.bundle.manifest_file import MANIFEST, MAX_MANIFEST_BYTES, read_manifest
from elfnet.deploy.bundle.members import open_members
from elfnet.errors import ElfnetError, RequestError, WorkError

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
