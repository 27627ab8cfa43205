"""A fingerprint of data, so that a table or a checkpoint is never read beside data it was not made from."""

import hashlib
from collections.abc import Sequence

from elfnet.data.examples import Examples


def fingerprint(class_names: Sequence[str], *splits: Examples) -> str:
    """sha256 of the class names and of all that is in every split, in order, as hex digits."""
    digest = hashlib.sha256(repr(tuple(class_names)).encode())
    for split in splits:
        split.update_fingerprint(digest)
    return digest.hexdigest()
