"""Finding tensors in whatever a model returns."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from torch import Tensor


def tensors_in(value: Any, keys: tuple[Any, ...] = ()) -> list[tuple[tuple[Any, ...], Tensor]]:
    """Tensors inside what a step returned, with the keys that lead there; a tensor itself is its own step."""
    inner: list[tuple[Any, Any]] = []
    if isinstance(value, Tensor):
        return [(keys, value)] if keys else []
    if isinstance(value, tuple | list):
        inner = list(enumerate(value))
    elif isinstance(value, Mapping):
        inner = list(value.items())
    elif is_dataclass(value):
        inner = [(f".{field.name}", getattr(value, field.name)) for field in fields(value)]
    return [found for key, item in inner for found in tensors_in(item, (*keys, key))]


def logits_in(output: Any) -> Tensor | None:
    """A model's logits: its output, or what its output calls so."""
    logits = output if isinstance(output, Tensor) else getattr(output, "logits", None)
    return logits if isinstance(logits, Tensor) else None
