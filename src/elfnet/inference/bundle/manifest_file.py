"""Read `manifest.json` of a bundle of version 0.1.0, which is the manifest with two hashes.

`sha256` covers the whole content, so that an altered threshold is detected like an altered weight. `identity` excludes
the measurements, so that two exports of one run have the same identity.
"""

import json

from pydantic import ValidationError

from elfnet.errors import WorkError
from elfnet.inference.bundle.manifest import FORMAT, FORMAT_VERSION, Manifest
from elfnet.parsing import parse_json
from elfnet.run.json_file import content_sha256
from elfnet.strict import first_error

MANIFEST = "manifest.json"
MAX_MANIFEST_BYTES = 64 * 2**20


def identity_of(manifest: Manifest) -> str:
    """Return the hash of everything in the manifest except measurements."""
    content = manifest.model_dump(mode="json")
    for variant in content["variants"].values():
        del variant["measured"]
    return content_sha256(content)


def read_manifest(text: bytes, *, where: str) -> Manifest:
    """Parse and check the content of `manifest.json`, its hash first.

    Args:
        text: The content of the file.
        where: Name of the bundle in error messages.

    Raises:
        WorkError: The text is not a manifest of this format version, or was altered.
    """
    try:
        content = parse_json(text)
    except ValueError as error:
        raise WorkError(f"{where}: {MANIFEST} is damaged ({error}); export the run again") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise WorkError(f"{where} is not an elfnet bundle; make one with 'elfnet export RUN'")
    version = content.get("format_version")
    if version != FORMAT_VERSION:
        newer = isinstance(version, int) and version > FORMAT_VERSION
        way_out = "update elfnet" if newer else "export the run again"
        raise WorkError(f"{where} has bundle format version {version!r}, this elfnet reads {FORMAT_VERSION}; {way_out}")
    claimed, identity = content.pop("sha256", None), content.get("identity")
    if claimed != content_sha256(content):
        raise WorkError(f"{where}: {MANIFEST} was altered (its hash does not match); export the run again")
    content.pop("identity", None)
    try:
        manifest = Manifest.model_validate_json(json.dumps(content))
    except ValidationError as error:
        raise WorkError(f"{where}: {MANIFEST} is not valid ({first_error(error)}); export the run again") from error
    if identity != identity_of(manifest):
        raise WorkError(f"{where}: {MANIFEST} was altered (its identity does not match); export the run again")
    return manifest
