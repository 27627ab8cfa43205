"""Safe reader of the python version of CIFAR, whose files are pickles.

A pickle can name any function and call it. Here the five names in the official files are mapped to stand-ins of this
module, which only store bytes; every other name is refused. Not even NumPy's own classes can be reached, and a pickle
cannot set attributes of the stand-ins.
"""

import io
import math
import pickle
import pickletools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elfnet.errors import WorkError


class _Array:
    """Stand-in for an array: `__setstate__` receives its shape and bytes."""

    __slots__ = ("array",)

    def __setstate__(self, state: tuple[int, tuple[int, ...], object, bool, bytes]) -> None:
        _version, shape, dtype, is_fortran, content = state
        if not isinstance(dtype, _Bytes) or not isinstance(content, bytes) or len(content) != math.prod(shape):
            raise ValueError("an array that is not of type uint8, or whose size does not match its shape")
        flat = np.frombuffer(content, dtype=np.uint8)
        self.array: NDArray[np.uint8] = flat.reshape(shape, order="F" if is_fortran else "C")


class _Bytes:
    """Stand-in for the dtype uint8. Its state is the byte order, which does not matter for bytes."""

    __slots__ = ()

    def __setstate__(self, state: object) -> None:
        pass


class _ArrayType:
    """Stand-in for `numpy.ndarray`, which the files pass as an argument and never call."""

    __slots__ = ()


class _NewArray:
    """Stand-in for NumPy's `_reconstruct`; the arguments are placeholders that `__setstate__` replaces."""

    __slots__ = ()

    def __call__(self, _type: object, _shape: object, _code: object) -> _Array:
        return _Array()


class _NewDtype:
    """Stand-in for `numpy.dtype`."""

    __slots__ = ()

    def __call__(self, code: object, *_flags: object) -> _Bytes:
        if code not in ("u1", b"u1", "|u1", b"|u1"):
            raise ValueError(f"an array of type {code!r}, expected uint8")
        return _Bytes()


class _Encode:
    """Stand-in for `_codecs.encode`, which newer Python versions use to write bytes in old protocols."""

    __slots__ = ()

    def __call__(self, text: str, encoding: str) -> bytes:
        if not isinstance(text, str) or encoding != "latin1":
            raise ValueError("bytes that are not encoded as latin1")
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


def _check_memo(content: bytes) -> None:
    """Refuse positions in the memo that no file of this length needs: the reader allocates memory up to them.

    Walking over the operations, which executes nothing, also refuses lengths beyond the end of the file.
    """
    for operation, argument, _ in pickletools.genops(content):
        if operation.name in ("PUT", "BINPUT", "LONG_BINPUT") and int(argument or 0) > len(content):
            raise ValueError(f"it has memo position {str(argument)[:20]} in {len(content)} bytes")


def read_pickled_dict(content: bytes, *, where: str) -> dict[str, Any]:
    """Read the dictionary in a CIFAR pickle: keys as str, arrays as uint8.

    Args:
        where: Name of the file, for messages.

    Raises:
        WorkError: If the pickle contains anything else.
    """
    try:
        _check_memo(content)
        loaded = _RestrictedUnpickler(io.BytesIO(content), encoding="bytes").load()
    except Exception as error:  # a damaged pickle can raise any exception
        raise _not_cifar(where, str(error) or type(error).__name__) from error
    if not isinstance(loaded, dict) or not all(isinstance(key, (str, bytes)) for key in loaded):
        raise _not_cifar(where, "it is not a dictionary with named entries")
    text_keys = {key.decode("latin1") if isinstance(key, bytes) else key: value for key, value in loaded.items()}
    return {
        key: getattr(value, "array", None) if isinstance(value, _Array) else value for key, value in text_keys.items()
    }


def _not_cifar(where: str, reason: str) -> WorkError:
    one_line = " ".join(reason.split())
    return WorkError(f"{where} is not a CIFAR pickle: {one_line}; no code in it was executed; use the official file")
