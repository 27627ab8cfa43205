"""md5 sums of data files. They find damage, not malice: nothing that is read here can execute anything either way."""

import hashlib
from io import BufferedReader
from pathlib import Path

from elfnet.errors import WorkError


def md5_of_bytes(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def md5_of_open_file(file: BufferedReader) -> str:
    return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def check_md5(file: Path, *, found: str, expected: str, way_out: str) -> None:
    """Refuse a file whose md5 is another than expected, in one line that names both."""
    if found != expected:
        raise WorkError(f"{file} is truncated or altered: md5 {found}, expected {expected}; {way_out}")
