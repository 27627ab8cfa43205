"""Open and verify a bundle: every file is compared with its hash before any of it is used.

The graphs are used from the bytes that were hashed, so that no file can be exchanged in between. The hashes detect
damage and partial changes. They do not prove who wrote the bundle.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elfnet.calibrate.family import Family
from elfnet.errors import ElfnetError, WorkError
from elfnet.inference.bundle.archive import Members, open_members
from elfnet.inference.bundle.manifest import MANIFEST, MAX_MANIFEST_BYTES, File, Manifest, read_manifest
from elfnet.registry import unknown_name

_CHUNK = 2**20


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
