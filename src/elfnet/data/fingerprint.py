"""A fingerprint of data, so that a table or a checkpoint is never read beside data it was not made from."""

import hashlib
from collections.abc import Sequence

import numpy as np

from elfnet.data.source import LabelledImages


def fingerprint(class_names: Sequence[str], *splits: LabelledImages) -> str:
    """sha256 of the class names and of every split's shape, labels and pixels, in order, as hex digits."""
    digest = hashlib.sha256(repr(tuple(class_names)).encode())
    for split in splits:
        digest.update(repr(split.images_NHWC.shape).encode())
        digest.update(np.ascontiguousarray(split.labels_N, dtype="<i8").data)
        digest.update(np.ascontiguousarray(split.images_NHWC).data)
    return digest.hexdigest()
