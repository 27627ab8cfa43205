"""Opening a bundle: every byte is compared with its hash before any of it is used.

The graphs are used from the very bytes that were hashed, so that nothing can be exchanged in between. A hash finds
damage and alteration by others than the author; it does not say who the author is.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from elfnet.calibrate.family import Family
from elfnet.errors import ElfnetError, WorkError
from elfnet.inference.bundle.archive import Members, open_members
from elfnet.inference.bundle.manifest import File, Manifest, Variant
from elfnet.inference.bundle.manifest_file import MANIFEST, MAX_MANIFEST_BYTES, read_manifest
from elfnet.registry import unknown_name

_CHUNK = 2**20


@dataclass(frozen=True, eq=False)
class Bundle:
    """A verified bundle.

    Attributes:
        graphs: the ONNX graph of each stage with its head, in order.
        family: the operating points of these graphs.
    """

    path: Path
    manifest: Manifest
    graphs: tuple[bytes, ...]
    family: Family


def open_bundle(path: str | Path, *, variant: str = "float32") -> Bundle:
    """Read and verify all of it; anything missing, added, altered or contradictory is refused in one line."""
    path = Path(path)
    with open_members(path, marker=MANIFEST) as members:
        manifest = _manifest(members, str(path))
        if variant not in manifest.variants:
            raise unknown_name(f"variant of {path}:", variant, list(manifest.variants))
        chosen = manifest.variants[variant]
        kept = {
            name: _verified(members, name, file, str(path), keep=name in chosen.graphs)
            for name, file in manifest.files.items()
        }
    return Bundle(path, manifest, tuple(kept[name] for name in chosen.graphs), _family(manifest, chosen, str(path)))


def read_file(bundle: Bundle, name: str) -> bytes:
    """One more file of a bundle that is open, verified again."""
    with open_members(bundle.path, marker=MANIFEST) as members:
        if name not in members.sizes:
            raise WorkError(f"{bundle.path}: {name} is missing; export the run again")
        return _verified(members, name, bundle.manifest.files[name], str(bundle.path), keep=True)


def _manifest(members: Members, where: str) -> Manifest:
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


def _verified(members: Members, name: str, expected: File, where: str, *, keep: bool) -> bytes:
    """The bytes of a file whose size and hash are right; what is not needed is hashed but not held."""
    way_out = "restore the bundle from a copy, or export the run again"
    if members.sizes[name] != expected.bytes:
        raise WorkError(f"{where}: {name} has {members.sizes[name]:,} bytes, not {expected.bytes:,}; {way_out}")
    digest, parts, left = hashlib.sha256(), [], expected.bytes
    with members.open(name) as file:
        # One byte more than expected is asked for: a file that grew meanwhile, or a zip that lied, is found out.
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


def _family(manifest: Manifest, variant: Variant, where: str) -> Family:
    try:
        family = Family.from_dict(variant.family)
        family.require_checkpoint(manifest.provenance.checkpoint_sha256)
    except (ElfnetError, KeyError, TypeError, ValueError) as error:
        reason = str(error).partition(";")[0]
        raise WorkError(f"{where}: the operating points are not for this network ({reason}); export again") from error
    if family.log_prior and len(family.log_prior) != len(manifest.class_names):
        raise WorkError(
            f"{where} has {len(manifest.class_names)} classes and operating points that adjust the logits of "
            f"{len(family.log_prior)}; export the run again"
        )
    if len(family.confidence_scale) != len(variant.graphs):
        raise WorkError(
            f"{where} has {len(variant.graphs)} stages and operating points for {len(family.confidence_scale)} exits; "
            "export the run again"
        )
    return family
