"""Exit tables on disk: one .safetensors file, facts as JSON in its header, and a hash over everything.

Nothing executes on reading. The hash covers the facts too: a table edited from "test" to "calibration" is found out.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from elfnet.atomic import write_with
from elfnet.errors import WorkError

FORMAT = "elfnet-exit-table"
FORMAT_VERSION = "1"

Facts = dict[str, Any]
Tensors = dict[str, NDArray[Any]]


def write(path: Path, tensors: Tensors, facts: Facts) -> None:
    # The library writes the memory behind the pointer, whatever the strides say.
    tensors = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    facts_json = json.dumps(facts, sort_keys=True, allow_nan=False)
    metadata = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "facts": facts_json,
        "content_sha256": _content_sha256(tensors, facts_json),
    }

    def save(temporary: Path) -> None:
        try:
            save_file(tensors, temporary, metadata=metadata)
        except SafetensorError as error:
            raise WorkError(f"cannot write {path}: {error}; the previous file, if any, is intact") from error

    write_with(path, save)


def read(path: Path, *, mapped: str) -> tuple[Tensors, Facts]:
    """The tensors and facts of a table; tensor `mapped` stays on disk, the others are read into memory."""
    if not path.is_file():
        raise WorkError(f"there is no exit table at {path}; evaluate the run first")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata: dict[str, str] = file.metadata() or {}
            _require_version(path, metadata)
            tensors: Tensors = {name: file.get_tensor(name) for name in file.keys() if name != mapped}  # noqa: SIM118
        tensors[mapped] = _memory_map(path, mapped)
        facts_json = metadata["facts"]
        if metadata["content_sha256"] != _content_sha256(tensors, facts_json):
            raise WorkError(f"{path} has been altered or damaged (its hash does not match); evaluate the run again")
        facts: Facts = json.loads(facts_json)
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise WorkError(
            f"{path} is damaged or not an exit table ({_one_line(error)}); evaluate the run again"
        ) from error
    return tensors, facts


def _require_version(path: Path, metadata: dict[str, str]) -> None:
    if metadata.get("format") != FORMAT:
        raise WorkError(f"{path} is a .safetensors file but not an exit table; evaluate the run again")
    version = metadata.get("format_version")
    if version != FORMAT_VERSION:
        raise WorkError(
            f"{path} has exit table format {version!r}, this version of elfnet reads {FORMAT_VERSION!r}; "
            f"evaluate the run again"
        )


def _memory_map(path: Path, name: str) -> NDArray[Any]:
    """Map one float32 tensor. A .safetensors file is: 8 bytes header length, JSON header, tensor bytes."""
    with path.open("rb") as file:
        header_bytes = int.from_bytes(file.read(8), "little")
        entry = json.loads(file.read(header_bytes))[name]
    if entry["dtype"] != "F32":
        raise ValueError(f"{name} is {entry['dtype']}, not F32")
    shape = tuple(entry["shape"])
    if 0 in shape:  # an empty file region cannot be mapped
        return np.zeros(shape, dtype=np.float32)
    offset = 8 + header_bytes + entry["data_offsets"][0]
    return np.memmap(path, dtype="<f4", mode="r", offset=offset, shape=shape)


def _content_sha256(tensors: Tensors, facts_json: str) -> str:
    digest = hashlib.sha256(facts_json.encode())
    for name in sorted(tensors):
        array = tensors[name]
        digest.update(f"\n{name} {array.dtype.name} {array.shape}\n".encode())
        if array.size:
            digest.update(array.data.cast("B"))
    return digest.hexdigest()


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
