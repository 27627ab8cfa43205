"""What a recorded model is made of: steps in the order they ran, and what they refer to."""

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import Any, Literal

import torch
from torch import Tensor, nn


class NotRecordableError(Exception):
    """The code of one module (its own, not that of the modules it calls) cannot be taken apart; `owner` is its path."""

    def __init__(self, owner: str, reason: str) -> None:
        super().__init__(reason)
        self.owner, self.reason = owner, reason


@dataclass(frozen=True)
class Ref:
    """The value of an earlier step."""

    step: int


@dataclass(frozen=True)
class Attribute:
    """A parameter or buffer of the model, by its path."""

    path: str


@dataclass(frozen=True, eq=False)
class Constant:
    """A tensor that is neither computed by a step nor registered in the model."""

    tensor: Tensor


@dataclass
class Step:
    """One thing that ran.

    Attributes:
        kind: the input, a module called whole, a function, or one tensor out of what a step returned.
        target: the module's path, the function, or the keys that lead to the tensor.
        owner: path of the module whose own code asked for it ("" for the model itself).
        shape: of the value where it is one tensor.
        from_input: the value depends on the model's input.
        mutates: an argument was changed in place.
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
        """The steps whose values this one reads."""
        yield from (leaf.step for leaf in leaves((self.args, self.kwargs)) if isinstance(leaf, Ref))


@dataclass
class Recording:
    """A model's forward pass, step by step.

    Attributes:
        ends: for each module that was called, how many steps had been taken when it returned, one number a call.
        starts: the same for when it was called.
        output: the step whose value is the logits.
    """

    steps: list[Step] = field(default_factory=list)
    starts: dict[str, list[int]] = field(default_factory=dict)
    ends: dict[str, list[int]] = field(default_factory=dict)
    output: int = -1

    def last_use(self) -> list[int]:
        """For each step the last step that reads its value; itself where none does."""
        last = list(range(len(self.steps)))
        for index, step in enumerate(self.steps):
            for ref in step.refs():
                last[ref] = index
        # The caller reads the logits after everything else.
        last[self.output] = len(self.steps)
        return last


def leaves(value: Any) -> Iterator[Any]:
    """Everything inside tuples, lists, dicts and slices."""
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
    """The same structure with every leaf changed."""
    if isinstance(value, tuple):
        return tuple(map_leaves(item, change) for item in value)
    if isinstance(value, list):
        return [map_leaves(item, change) for item in value]
    if isinstance(value, dict):
        return {key: map_leaves(item, change) for key, item in value.items()}
    if isinstance(value, slice):
        return slice(*(map_leaves(item, change) for item in (value.start, value.stop, value.step)))
    return change(value)


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


def item_of(value: Any, keys: tuple[Any, ...]) -> Any:
    """The tensor that the keys lead to; a key that starts with a dot is an attribute."""
    return reduce(
        lambda inner, key: getattr(inner, key[1:]) if _is_attribute(key) else operator.getitem(inner, key), keys, value
    )


def _is_attribute(key: Any) -> bool:
    return isinstance(key, str) and key.startswith(".")


def execute(
    recording: Recording, model: nn.Module, images: Tensor, *, around: Callable[[Step, Callable[[], Any]], Any]
) -> Any:
    """Run every step on the images through `around` (which gets the step and what runs it); the logits."""
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
            case OfBatch(times, plus):
                return times * len(images) + plus
            case OfMode(owner, training, evaluation):
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
