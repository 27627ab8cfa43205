"""The intermediate representation of a recorded model: steps and their arguments, merging, and execution.

A `Recording` is the list of steps of one forward pass. `merge_recordings` compares recordings made under different
conditions and marks the arguments that depend on batch size, mode, precision or device. `execute` runs the result.
"""

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import Any, Literal

import torch
from torch import Tensor, nn

BATCH_SIZE, OTHER_BATCH_SIZE = 2, 3
"""The batch sizes of the recordings that are compared."""


class NotRecordableError(Exception):
    """The code of a module cannot be recorded step by step.

    Attributes:
        owner: the path of the module whose own code is the reason; "" for the model itself.
        reason: the reason, for messages.
    """

    def __init__(self, owner: str, reason: str) -> None:
        super().__init__(reason)
        self.owner, self.reason = owner, reason


@dataclass(frozen=True)
class Ref:
    """A reference to the value of an earlier step."""

    step: int


@dataclass(frozen=True)
class Attribute:
    """A parameter or buffer of the model, by its path."""

    path: str


@dataclass(frozen=True, eq=False)
class Constant:
    """A tensor that is neither the value of a step nor a parameter or buffer of the model."""

    tensor: Tensor


@dataclass(frozen=True)
class BatchDependent:
    """An integer that depends on the batch size: `times` x batch size + `plus`."""

    times: int
    plus: int


@dataclass(frozen=True)
class ModeDependent:
    """A value that depends on whether the module `owner` is in training or in evaluation mode."""

    owner: str
    training: Any
    evaluation: Any


@dataclass(frozen=True)
class ParameterDtype:
    """The dtype of the model's parameters at run time."""


@dataclass(frozen=True)
class ParameterDevice:
    """The device of the model's parameters at run time."""


@dataclass
class Step:
    """One operation of a forward pass.

    Attributes:
        kind: the input, a call of a module, a call of a function, or one tensor of the output of an earlier step.
        target: the path of the module, the function, or the keys that lead to the tensor.
        args: positional arguments; tensors are replaced by `Ref`, `Attribute` or `Constant`.
        kwargs: keyword arguments, with the same replacements.
        owner: the path of the module whose code made the call; "" for the model itself.
        shape: the shape of the value; None if it is not a single tensor.
        floating: whether the value is a floating-point tensor.
        from_input: whether the value depends on the input of the model.
        mutates: whether an argument was changed in place.
    """

    kind: Literal["input", "module", "function", "item"]
    target: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    owner: str
    shape: tuple[int, ...] | None = None
    floating: bool = False
    from_input: bool = False
    mutates: bool = False

    def refs(self) -> Iterator[int]:
        """The indices of the steps whose values this step reads."""
        yield from (leaf.step for leaf in leaves((self.args, self.kwargs)) if isinstance(leaf, Ref))


@dataclass
class Recording:
    """The forward pass of a model, step by step.

    Attributes:
        steps: the steps in the order in which they ran.
        starts: for each module that was called, the number of steps before it was called; one number per call.
        ends: for each module that was called, the number of steps when it returned; one number per call.
        output: the index of the step whose value is the logits.
    """

    steps: list[Step] = field(default_factory=list)
    starts: dict[str, list[int]] = field(default_factory=dict)
    ends: dict[str, list[int]] = field(default_factory=dict)
    output: int = -1

    def last_use(self) -> list[int]:
        """For each step, the index of the last step that reads its value; its own index if none does."""
        last = list(range(len(self.steps)))
        for index, step in enumerate(self.steps):
            for ref in step.refs():
                last[ref] = index
        # The caller reads the logits after the last step.
        last[self.output] = len(self.steps)
        return last


class _DifferenceError(Exception):
    """Recordings differ in an argument; the text is the reason, for messages."""


def merge_recordings(base: Recording, batch: Recording, training: Recording, precision: Recording) -> Recording:
    """Return the base recording with arguments marked that depend on batch size, mode, precision or device.

    Args:
        base: recorded with `BATCH_SIZE` examples, in evaluation mode.
        batch: recorded with `OTHER_BATCH_SIZE` examples.
        training: recorded in training mode.
        precision: recorded with parameters of another dtype.

    Raises:
        NotRecordableError: the recordings differ in another way.
    """
    recordings = (base, batch, training, precision)
    merged = []
    for index in range(max(len(recording.steps) for recording in recordings)):
        at = [recording.steps[index] for recording in recordings if index < len(recording.steps)]
        if len(at) < len(recordings):
            raise _not_recordable(at, "what it computes depends on batch size, mode or precision")
        merged.append(_merge_steps(at))
    if len({recording.output for recording in recordings}) > 1:
        raise NotRecordableError("", "another step computes its logits in training mode, or for another batch size")
    return replace(base, steps=merged)


def _not_recordable(steps: Sequence[Step], reason: str) -> NotRecordableError:
    """Blame the innermost module first. If that does not help, its parent is next."""
    return NotRecordableError(
        max((step.owner for step in steps), key=lambda owner: owner.count(".") + bool(owner)), reason
    )


def _merge_steps(steps: Sequence[Step]) -> Step:
    base = steps[0]
    if any((step.kind, step.target, step.owner) != (base.kind, base.target, base.owner) for step in steps):
        raise _not_recordable(steps, "what it computes depends on batch size, mode or precision")
    try:
        args = _merge([step.args for step in steps], base.owner)
        kwargs = _merge([step.kwargs for step in steps], base.owner)
    except _DifferenceError as difference:
        raise _not_recordable(steps, str(difference)) from None
    shape = base.shape
    if shape is not None:
        # -1 stands for the batch. The shape is kept only if the batch is the first dimension.
        other = steps[1].shape or ()
        shape = (-1, *shape[1:]) if other == (OTHER_BATCH_SIZE, *shape[1:]) and shape[:1] == (BATCH_SIZE,) else None
    return replace(base, args=args, kwargs=kwargs, shape=shape)


def _merge(values: Sequence[Any], owner: str) -> Any:
    base = values[0]
    kind = type(base)
    same_kind = all(type(value) is kind for value in values)
    if kind in (tuple, list) and same_kind and len({len(value) for value in values}) == 1:
        return kind(_merge(items, owner) for items in zip(*values, strict=True))
    if kind is dict and same_kind and all(value.keys() == base.keys() for value in values):
        return {key: _merge([value[key] for value in values], owner) for key in base}
    if kind is slice and same_kind:
        return slice(*(_merge([getattr(v, end) for v in values], owner) for end in ("start", "stop", "step")))
    if kind is Constant and same_kind:
        return _merge_constants(values)
    return _merge_plain(values, owner)


def _merge_constants(values: Sequence[Constant]) -> Constant:
    base = values[0].tensor.double()
    others = (value.tensor.double() for value in values[1:])
    if not all(other.shape == base.shape and torch.allclose(other, base, equal_nan=True) for other in others):
        raise _DifferenceError(
            "it uses a tensor that no torch function computed from the input, and that changes with the input"
        )
    return values[0]


def _merge_plain(values: Sequence[Any], owner: str) -> Any:
    base, batch, training, precision = values
    if isinstance(base, torch.device):
        return ParameterDevice()
    if _all_equal(*values):
        return base
    if any(isinstance(value, Ref | Attribute | Constant) for value in values):
        raise _DifferenceError("which tensors it combines depends on batch size, mode or precision")
    if _all_equal(base, training, precision) and type(base) is type(batch) is int:
        times = (batch - base) // (OTHER_BATCH_SIZE - BATCH_SIZE)
        return BatchDependent(times, base - times * BATCH_SIZE)
    if _all_equal(base, batch, precision) and not isinstance(base, tuple | list | dict | slice):
        return ModeDependent(owner, training, base)
    if _all_equal(base, batch, training) and isinstance(base, torch.dtype) and isinstance(precision, torch.dtype):
        return ParameterDtype()
    raise _DifferenceError(
        "an argument in it depends on batch size, mode or precision in a way that cannot be reproduced"
    )


def _all_equal(*values: Any) -> bool:
    return all(type(value) is type(values[0]) and value == values[0] for value in values)


def leaves(value: Any) -> Iterator[Any]:
    """Iterate over all values inside nested tuples, lists, dicts and slices."""
    if isinstance(value, tuple | list):
        for item in value:
            yield from leaves(item)
    elif isinstance(value, dict):
        yield from leaves(tuple(value.values()))
    elif isinstance(value, slice):
        yield from leaves((value.start, value.stop, value.step))
    else:
        yield value


def map_leaves(value: Any, change: Callable[[Any], Any]) -> Any:
    """Apply `change` to all values inside nested tuples, lists, dicts and slices."""
    if isinstance(value, tuple):
        return tuple(map_leaves(item, change) for item in value)
    if isinstance(value, list):
        return [map_leaves(item, change) for item in value]
    if isinstance(value, dict):
        return {key: map_leaves(item, change) for key, item in value.items()}
    if isinstance(value, slice):
        return slice(*(map_leaves(item, change) for item in (value.start, value.stop, value.step)))
    return change(value)


def item_of(value: Any, keys: tuple[Any, ...]) -> Any:
    """Return the tensor that the keys lead to; a key that starts with a dot is an attribute."""
    return reduce(
        lambda inner, key: getattr(inner, key[1:]) if is_attribute_key(key) else operator.getitem(inner, key),
        keys,
        value,
    )


def is_attribute_key(key: Any) -> bool:
    """Whether a key of an item step is the name of an attribute, with a leading dot."""
    return isinstance(key, str) and key.startswith(".")


def execute(
    recording: Recording, model: nn.Module, images: Tensor, *, around: Callable[[Step, Callable[[], Any]], Any]
) -> Any:
    """Run all steps on the images and return the logits.

    Args:
        around: called for each step with the step and a function that runs it; returns the value of the step.
    """
    parameter = next(model.parameters(), images)
    values: list[Any] = []

    def value_of(leaf: Any) -> Any:
        match leaf:
            case Ref(step):
                return values[step]
            case Attribute(path):
                owner, _, name = path.rpartition(".")
                return getattr(model.get_submodule(owner), name)
            case Constant(tensor):
                return tensor
            case BatchDependent(times, plus):
                return times * len(images) + plus
            case ModeDependent(owner, training, evaluation):
                return training if model.get_submodule(owner).training else evaluation
            case ParameterDtype():
                return parameter.dtype
            case ParameterDevice():
                return parameter.device
        return leaf

    def run(step: Step) -> Any:
        args, kwargs = map_leaves(step.args, value_of), map_leaves(step.kwargs, value_of)
        if step.kind == "input":
            return images
        if step.kind == "item":
            return item_of(args[0], step.target)
        function = model.get_submodule(step.target) if step.kind == "module" else step.target
        return function(*args, **kwargs)

    for step in recording.steps:
        values.append(around(step, partial(run, step)))
    return values[recording.output]
