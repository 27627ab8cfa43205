"""Tensors by name from a weights file, without executing anything that is in it.

Reads safetensors and torch files that hold tensors only. Training scripts wrap their state dicts in several ways; those
that are common are unwrapped.
"""

import pickle
import warnings
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from elfnet.errors import RequestError, WorkError

# Where scripts put the state dict inside what they save.
WRAPPERS = ("state_dict", "model_state_dict", "model", "network", "net", "weights")


def read_weights_file(file: str | Path) -> dict[str, Tensor]:
    """Every tensor of the file on the CPU, by the name it has there."""
    path = Path(file).expanduser()
    if not path.is_file():
        raise RequestError(f"model.weights: there is no file {path}; name a .safetensors, .pt or .pth file")
    try:
        tensors = _read_safetensors(path) if _is_safetensors(path) else _read_torch(path)
    except OSError as error:
        raise WorkError(f"model.weights: cannot read {path}: {error.strerror or error}") from error
    if not tensors:
        raise WorkError(f"model.weights: {path} holds no tensors by name; save a network's state dict in it")
    return tensors


def _is_safetensors(path: Path) -> bool:
    """By content, since names lie: eight bytes of length, then JSON."""
    with path.open("rb") as opened:
        return opened.read(9)[8:] == b"{"


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        with safe_open(path, framework="pt", device="cpu") as opened:
            return {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 (not a mapping)
    except SafetensorError as error:
        raise WorkError(f"model.weights: {path} is truncated or damaged ({error}); get it again") from error


def _read_torch(path: Path) -> dict[str, Tensor]:
    try:
        with warnings.catch_warnings():
            # About unusual pickles; they are read or refused, and either way no business of the user's.
            warnings.simplefilter("ignore")
            content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        # Torch's text goes on for many lines and advises to load it anyway, which would execute what is in it.
        raise WorkError(
            f"model.weights: {path} is not a weights file, or holds more than tensors, which is not loaded since it "
            "could execute; save its state dict alone, best as safetensors"
        ) from error
    except (RuntimeError, EOFError, ValueError, KeyError, AttributeError) as error:
        reason = str(error).partition("\n")[0]
        raise WorkError(f"model.weights: {path} is truncated or damaged ({reason}); get it again") from error
    return _unwrapped(content)


def _unwrapped(content: Any) -> dict[str, Tensor]:
    """The tensors of a state dict, which may lie inside other things that were saved with it."""
    if not isinstance(content, dict):
        return {}
    for wrapper in WRAPPERS:
        if isinstance(content.get(wrapper), dict):
            return _unwrapped(content[wrapper])
    return {str(name): value for name, value in content.items() if isinstance(value, Tensor)}
