"""Repeating a recording, step by step, with values."""

import operator
from collections.abc import Callable
from functools import partial, reduce
from typing import Any

from torch import Tensor, nn

from elfnet.models.attach.agree import OfBatch, OfMode, ParameterDevice, ParameterDtype
from elfnet.models.attach.steps import Attribute, Constant, Recording, Ref, Step, map_leaves


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
