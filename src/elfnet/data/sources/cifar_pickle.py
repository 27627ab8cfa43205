"""Reading the python version of CIFAR, which is a pickle, without giving the file any power.

A pickle is a program: it names functions and calls them. Here the five names that those files use stand for small
objects of this module, which do nothing but keep bytes; every other name is refused. Not even NumPy's own classes are
reachable, and what the file can call has no attribute it could set.
"""

import io
import math
import pickle
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elfnet.errors import WorkError


class _Array:
    """Stands for an array under construction: `__setstate__` receives its shape and bytes."""

    __slots__ = ("array",)

    def __setstate__(self, state: tuple[int, tuple[int, ...], object, bool, bytes]) -> None:
        _version, shape, dtype, is_fortran, content = state
        if not isinstance(dtype, _Bytes) or not isinstance(content, bytes) or len(content) != math.prod(shape):
            raise ValueError("an array that is not made of bytes, or not as many as its shape says")
        flat = np.frombuffer(content, dtype=np.uint8)
        self.array: NDArray[np.uint8] = flat.reshape(shape, order="F" if is_fortran else "C")


class _Bytes:
    """Stands for the dtype uint8, the only one there is. Its state is the byte order, which bytes do not have."""

    __slots__ = ()

    def __setstate__(self, state: object) -> None:
        pass


class _ArrayType:
    """Stands for `numpy.ndarray`, which the files name as an argument and never call."""

    __slots__ = ()


class _NewArray:
    """Stands for NumPy's `_reconstruct`; type, shape and code are placeholders that the state replaces."""

    __slots__ = ()

    def __call__(self, _type: object, _shape: object, _code: object) -> _Array:
        return _Array()


class _NewDtype:
    """Stands for `numpy.dtype`."""

    __slots__ = ()

    def __call__(self, code: object, *_flags: object) -> _Bytes:
        if code not in ("u1", b"u1", "|u1", b"|u1"):
            raise ValueError(f"an array of type {code!r}, expected bytes")
        return _Bytes()


class _Encode:
    """Stands for `_codecs.encode`, by which newer Pythons write bytes into old pickles."""

    __slots__ = ()

    def __call__(self, text: str, encoding: str) -> bytes:
        if not isinstance(text, str) or encoding != "latin1":
            raise ValueError("bytes that are not written as latin1")
        return text.encode("latin1")


_STAND_INS: dict[tuple[str, str], object] = {
    ("numpy.core.multiarray", "_reconstruct"): _NewArray(),
    ("numpy._core.multiarray", "_reconstruct"): _NewArray(),
    ("numpy", "ndarray"): _ArrayType(),
    ("numpy", "dtype"): _NewDtype(),
    ("_codecs", "encode"): _Encode(),
}


class _RestrictedUnpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        try:
            return _STAND_INS[module_name, global_name]
        except KeyError:
            raise ValueError(f"it names {module_name}.{global_name}, which no data file needs") from None


def read_pickled_dict(content: bytes, *, where: str) -> dict[str, Any]:
    """The dictionary in a CIFAR pickle, keys as text, arrays as uint8; anything else is refused.

    Args:
        where: The file's name, for the error.
    """
    try:
        loaded = _RestrictedUnpickler(io.BytesIO(content), encoding="bytes").load()
    except Exception as error:  # a damaged pickle can fail in any way; none of them is our defect
        raise _refusal(where, str(error) or type(error).__name__) from error
    if not isinstance(loaded, dict) or not all(isinstance(key, (str, bytes)) for key in loaded):
        raise _refusal(where, "it is not a dictionary with named entries")
    text_keys = {key.decode("latin1") if isinstance(key, bytes) else key: value for key, value in loaded.items()}
    return {
        key: getattr(value, "array", None) if isinstance(value, _Array) else value for key, value in text_keys.items()
    }


def _refusal(where: str, reason: str) -> WorkError:
    one_line = " ".join(reason.split())
    return WorkError(f"{where} is not a CIFAR pickle: {one_line}; nothing in it was run; use the official file")
