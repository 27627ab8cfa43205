"""One program from several recordings: what differs between them says what a value depends on.

The model is recorded on two images, on three (other) images, in training mode, and in another precision. A number
that differs between the first two depends on the batch size; a value that differs in training mode, on the mode; a
dtype that follows the parameters, on theirs. What else differs cannot be repeated, and the module that did it is kept
whole.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from elfnet.models.attach.steps import Attribute, Constant, NotRecordableError, Recording, Ref, Step

BATCH, OTHER_BATCH = 2, 3


@dataclass(frozen=True)
class OfBatch:
    """`times` x the batch size + `plus`."""

    times: int
    plus: int


@dataclass(frozen=True)
class OfMode:
    """One value while the module `owner` is in training mode, another in evaluation."""

    owner: str
    training: Any
    evaluation: Any


@dataclass(frozen=True)
class ParameterDtype:
    """The precision the parameters have when it runs."""


@dataclass(frozen=True)
class ParameterDevice:
    """The device the parameters are on when it runs."""


class _DifferenceError(Exception):
    pass


def agree(base: Recording, batch: Recording, training: Recording, precision: Recording) -> Recording:
    """The base recording with everything that depends on batch size, mode, precision or device marked so.

    Raises:
        NotRecordableError: the recordings differ in a way that has no such reason.
    """
    recordings = (base, batch, training, precision)
    merged = []
    for index in range(max(len(recording.steps) for recording in recordings)):
        at = [recording.steps[index] for recording in recordings if index < len(recording.steps)]
        if len(at) < len(recordings):
            raise _differs(at, "what it computes depends on batch size, mode or precision")
        merged.append(_agree_on_step(at))
    if len({recording.output for recording in recordings}) > 1:
        raise NotRecordableError("", "its logits come from elsewhere in training mode, or for another batch size")
    return replace(base, steps=merged)


def _differs(steps: Sequence[Step], reason: str) -> NotRecordableError:
    """The innermost module is the first suspect: if it is innocent, its parent is next."""
    return NotRecordableError(
        max((step.owner for step in steps), key=lambda owner: owner.count(".") + bool(owner)), reason
    )


def _agree_on_step(steps: Sequence[Step]) -> Step:
    base = steps[0]
    if any((step.kind, step.target, step.owner) != (base.kind, base.target, base.owner) for step in steps):
        raise _differs(steps, "what it computes depends on batch size, mode or precision")
    try:
        args = _agree_on([step.args for step in steps], base.owner)
        kwargs = _agree_on([step.kwargs for step in steps], base.owner)
    except _DifferenceError as difference:
        raise _differs(steps, str(difference)) from None
    shape = base.shape
    if shape is not None:
        # Whether the batch is the first dimension; -1 stands for it.
        other = steps[1].shape or ()
        shape = (-1, *shape[1:]) if other == (OTHER_BATCH, *shape[1:]) and shape[:1] == (BATCH,) else None
    return replace(base, args=args, kwargs=kwargs, shape=shape)


def _agree_on(values: Sequence[Any], owner: str) -> Any:
    base = values[0]
    kind = type(base)
    same_kind = all(type(value) is kind for value in values)
    if kind in (tuple, list) and same_kind and len({len(value) for value in values}) == 1:
        return kind(_agree_on(items, owner) for items in zip(*values, strict=True))
    if kind is dict and same_kind and all(value.keys() == base.keys() for value in values):
        return {key: _agree_on([value[key] for value in values], owner) for key in base}
    if kind is slice and same_kind:
        return slice(*(_agree_on([getattr(v, end) for v in values], owner) for end in ("start", "stop", "step")))
    if kind is Constant and same_kind:
        return _agree_on_constant(values)
    return _agree_on_plain(values, owner)


def _agree_on_constant(values: Sequence[Constant]) -> Constant:
    base = values[0].tensor.double()
    others = (value.tensor.double() for value in values[1:])
    if not all(other.shape == base.shape and torch.allclose(other, base, equal_nan=True) for other in others):
        raise _DifferenceError(
            "it uses a tensor that no torch function computed from the input, and that changes with the input"
        )
    return values[0]


def _agree_on_plain(values: Sequence[Any], owner: str) -> Any:
    base, batch, training, precision = values
    if isinstance(base, torch.device):
        return ParameterDevice()
    if _all_same(*values):
        return base
    if any(isinstance(value, Ref | Attribute | Constant) for value in values):
        raise _DifferenceError("which tensors it combines depends on batch size, mode or precision")
    if _all_same(base, training, precision) and type(base) is type(batch) is int:
        times = (batch - base) // (OTHER_BATCH - BATCH)
        return OfBatch(times, base - times * BATCH)
    if _all_same(base, batch, precision) and not isinstance(base, tuple | list | dict | slice):
        return OfMode(owner, training, base)
    if _all_same(base, batch, training) and isinstance(base, torch.dtype) and isinstance(precision, torch.dtype):
        return ParameterDtype()
    raise _DifferenceError("a value in it depends on batch size, mode or precision in a way that cannot be repeated")


def _all_same(*values: Any) -> bool:
    return all(type(value) is type(values[0]) and value == values[0] for value in values)
