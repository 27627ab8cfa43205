"""The unpickler reads what CIFAR files contain and refuses everything else, running nothing."""

import io
import os
import pickle
import pickletools
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elfnet.data.sources.cifar_pickle import read_pickled_dict
from elfnet.errors import WorkError

PIXELS = np.arange(12, dtype=np.uint8).reshape(3, 4)


def python2_pickle(pixels: np.ndarray[Any, np.dtype[np.uint8]], labels: list[int]) -> bytes:
    """What Python 2 and its NumPy wrote: byte strings (opcode U), the old module name, protocol 2."""

    def text(value: bytes) -> bytes:
        return b"U" + struct.pack("<B", len(value)) + value

    def whole(value: int) -> bytes:
        return b"J" + struct.pack("<i", value)

    dtype = b"cnumpy\ndtype\n(" + text(b"u1") + whole(0) + whole(1) + b"tR("
    dtype += whole(3) + text(b"|") + b"NNN" + whole(-1) + whole(-1) + whole(0) + b"tb"
    content = pixels.tobytes()
    array = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(" + whole(0) + b"t" + text(b"b") + b"tR("
    array += whole(1) + b"(" + b"".join(whole(side) for side in pixels.shape) + b"t" + dtype + b"\x89"
    array += b"T" + struct.pack("<i", len(content)) + content + b"tb"
    labels_list = b"](" + b"".join(whole(label) for label in labels) + b"e"
    return b"\x80\x02}(" + text(b"data") + array + text(b"labels") + labels_list + b"u."


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_and_lists_come_back(protocol: int, order: str) -> None:
    pixels = np.asarray(PIXELS, order="F" if order == "F" else "C")
    content = pickle.dumps({b"data": pixels, "labels": [1, 2, 3], b"batch_label": b"x"}, protocol=protocol)
    entries = read_pickled_dict(content, where="file")
    assert set(entries) == {"data", "labels", "batch_label"}
    assert np.array_equal(entries["data"], PIXELS)
    assert entries["labels"] == [1, 2, 3]


def test_a_pickle_of_python_2_comes_back() -> None:
    content = python2_pickle(PIXELS, [3, 1, 2])
    pickletools.dis(content, out=io.StringIO())  # a well-formed pickle, says the standard library
    entries = read_pickled_dict(content, where="file")
    assert np.array_equal(entries["data"], PIXELS)
    assert entries["labels"] == [3, 1, 2]


class Calls:
    """Pickles as a call of `function`."""

    def __init__(self, function: Callable[..., Any], *arguments: object) -> None:
        self.reduced = (function, arguments)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[object, ...]]:
        return self.reduced


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_nothing_can_be_called(tmp_path: Path, protocol: int) -> None:
    trace = tmp_path / "trace"
    for call in (
        Calls(os.mkdir, str(trace)),
        Calls(eval, f"__import__('os').mkdir({str(trace)!r})"),
        Calls(getattr, 1, "real"),
    ):
        with pytest.raises(WorkError, match=r"file is not a CIFAR pickle: it names .*; no code in it was executed"):
            read_pickled_dict(pickle.dumps({"data": call}, protocol=protocol), where="file")
    assert not trace.exists()


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x04\x8c\x05numpy\x8c\x0ff2py.os.system\x93.",  # a dotted name, protocol 4
        b"\x80\x02cnumpy\nload\n.",
        b"\x80\x02cnumpy.core.multiarray\nscalar\n.",
        b"\x80\x02c_codecs\ndecode\n.",
        b"\x80\x02}(U\x01acnumpy\ndtype\n}U\x05__doc_U\x01xsbu.",  # sets an attribute of what it may name
        b"\x80\x02}(U\x01acnumpy\ndtype\n(U\x01OK\x00K\x01tRu.",  # an array of objects
        b"\x80\x02}(U\x01a(cnumpy\ndtype\nU\x02u1)\x81u.",  # instantiates what it may name as a class
        b"\x80\x02P1\n.",  # a persistent object
        b"",
        b"\x80\x02}",
        b"\xff" * 40,
    ],
)
def test_pickles_that_try_something_or_are_damaged_are_refused(content: bytes) -> None:
    with pytest.raises(WorkError, match="file is not a CIFAR pickle") as caught:
        read_pickled_dict(content, where="file")
    assert "\n" not in str(caught.value)


def test_every_truncation_is_refused() -> None:
    content = python2_pickle(PIXELS, [3, 1, 2])
    for length in range(len(content)):
        with pytest.raises(WorkError, match="not a CIFAR pickle"):
            read_pickled_dict(content[:length], where="file")


def test_arrays_of_other_types_or_sizes_are_refused() -> None:
    with pytest.raises(WorkError, match="expected uint8"):
        read_pickled_dict(pickle.dumps({"data": np.zeros(3)}, protocol=2), where="file")
    with pytest.raises(WorkError, match="size does not match its shape"):
        read_pickled_dict(python2_pickle(PIXELS, [1]).replace(b"J\x04\0\0\0t", b"J\x05\0\0\0t"), where="file")


def test_what_is_not_a_dictionary_is_refused() -> None:
    for wrong in ([1, 2], {1: 2}):
        with pytest.raises(WorkError, match="not a dictionary"):
            read_pickled_dict(pickle.dumps(wrong), where="file")


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x02]r\xff\xff\xff\x07.",  # a memo with 134 million places, 2 GB
        b"\x80\x02]p99999999999999999999\n.",
        b"\x80\x04\x8e" + struct.pack("<Q", 2**40) + b".",  # one terabyte of bytes
    ],
)
def test_a_short_pickle_cannot_take_much_memory(content: bytes) -> None:
    with pytest.raises(WorkError, match="is not a CIFAR pickle: ") as caught:
        read_pickled_dict(content, where="it")
    assert "MemoryError" not in str(caught.value)
    assert "dictionary" not in str(caught.value)
