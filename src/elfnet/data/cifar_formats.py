"""The two formats of the CIFAR releases, from a file's bytes to images and labels."""

# Shapes: N examples, H height, W width, C channels; the files store C, H, W in that order

from functools import partial

import numpy as np
from numpy.typing import NDArray

from elfnet.data.restricted_pickle import read_pickled_dict
from elfnet.data.source import LabelledImages
from elfnet.errors import WorkError

SIDE, CHANNELS = 32, 3
_PIXELS = CHANNELS * SIDE * SIDE


def read_binary(content: bytes, where: str, *, label_bytes: int) -> LabelledImages:
    """Rows of `label_bytes` labels and 3,072 pixels; the last label is the fine one (CIFAR-100 has coarse, fine)."""
    row = label_bytes + _PIXELS
    if not content or len(content) % row:
        raise WorkError(f"{where} has {len(content)} bytes, not a multiple of {row}; it is truncated, fetch it again")
    rows = np.frombuffer(content, dtype=np.uint8).reshape(-1, row)
    return LabelledImages(_images(rows[:, label_bytes:]), rows[:, label_bytes - 1].astype(np.int64))


def read_python(content: bytes, where: str, *, label_key: str) -> LabelledImages:
    """A pickled dictionary with `data` (N, 3072) and a list of labels, read without executing anything."""
    entries = read_pickled_dict(content, where=where)
    pixels, labels = entries.get("data"), entries.get(label_key)
    if not isinstance(pixels, np.ndarray) or pixels.ndim != 2 or pixels.shape[1] != _PIXELS:
        raise WorkError(f"{where} has no entry 'data' of shape (N, {_PIXELS}); use the official file")
    if not isinstance(labels, list) or not all(type(label) is int for label in labels) or len(labels) != len(pixels):
        raise WorkError(f"{where} has no list {label_key!r} of {len(pixels)} whole numbers; use the official file")
    return LabelledImages(_images(pixels), np.asarray(labels, dtype=np.int64))


def _images(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(pixels.reshape(-1, CHANNELS, SIDE, SIDE).transpose(0, 2, 3, 1))


cifar10_binary = partial(read_binary, label_bytes=1)
cifar100_binary = partial(read_binary, label_bytes=2)
cifar10_python = partial(read_python, label_key="labels")
cifar100_python = partial(read_python, label_key="fine_labels")
