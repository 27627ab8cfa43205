"""A part of a recording as a torch module: an fx graph from one tensor to one tensor.

Parameters, buffers and whole modules are the original's own objects under their own paths, so that a stage's state-dict
keys are those of the original.
"""

import operator
from typing import Any

import torch
from torch import fx, nn

from elfnet.models.attach.ir import (
    Attribute,
    Constant,
    OfBatch,
    OfMode,
    ParameterDevice,
    ParameterDtype,
    Recording,
    Ref,
    Step,
    map_leaves,
)

# An empty tensor of the parameters' precision that moves with them: where a stage learns precision and device.
LIKE_PARAMETERS = "like_parameters"


def choose(training: bool, in_training: Any, in_evaluation: Any) -> Any:
    """A value that depends on the mode."""
    return in_training if training else in_evaluation


def build_part(
    recording: Recording, model: nn.Module, *, first: int, given: int, last: int, wanted: int, copy_input: bool = False
) -> fx.GraphModule:
    """Steps `first` up to, not including, `last`: from the value of step `given` to that of step `wanted`.

    Args:
        copy_input: for a part that changes its input in place, which the head before it may still need for gradients.
    """
    builder = _Builder(recording, model, given)
    builder.begin(copy_input)
    for index in sorted(_needed(recording, first, last, given, wanted)):
        builder.add(index)
    return builder.finish(wanted)


def _needed(recording: Recording, first: int, last: int, given: int, wanted: int) -> set[int]:
    """Steps of the part that matter: for its result, or through what they change; and constants, wherever computed."""
    steps = recording.steps
    mine = [i for i in range(first, last) if steps[i].from_input and i != given]
    needed = {wanted} | {i for i in mine if steps[i].kind == "module" or steps[i].mutates}
    changing = {i: _sources(recording, i) for i, step in enumerate(steps) if step.mutates and not step.from_input}
    frontier = needed - {given}
    needed = set()
    while frontier:
        needed |= frontier
        read = {ref for index in frontier for ref in steps[index].refs()}
        # A constant that is filled in place through a view of it.
        read |= {i for i, sources in changing.items() if sources & needed}
        frontier = read - needed - {given}
    assert all(first <= i < last for i in needed if steps[i].from_input), "a cut where more than one tensor is live"
    return needed


def _sources(recording: Recording, index: int) -> set[int]:
    """Every step whose value went into this one."""
    found, frontier = set[int](), set(recording.steps[index].refs())
    while frontier:
        found |= frontier
        frontier = {ref for i in frontier for ref in recording.steps[i].refs()} - found
    return found


class _Builder:
    def __init__(self, recording: Recording, model: nn.Module, given: int) -> None:
        self._recording, self._model, self._given = recording, model, given
        self._graph = fx.Graph()
        self._nodes: dict[int, Any] = {}
        self._held: dict[str, Any] = {}  # what the graph refers to, by path
        self._unsaved: set[str] = set()  # those of them that are no part of the state dict
        self._input: Any = None
        self._saved = model.state_dict().keys()

    def begin(self, copy_input: bool) -> None:
        self._input = self._graph.placeholder("features")
        self._nodes[self._given] = self._graph.call_method("clone", (self._input,)) if copy_input else self._input

    def add(self, index: int) -> None:
        step = self._recording.steps[index]
        args, kwargs = map_leaves(step.args, self._argument), map_leaves(step.kwargs, self._argument)
        self._nodes[index] = self._call(step, args, kwargs)

    def _call(self, step: Step, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if step.kind == "module":
            self._held[step.target] = self._model.get_submodule(step.target)
            return self._graph.call_module(step.target, args, kwargs)
        if step.kind == "item":
            value = args[0]
            for key in step.target:
                attribute = isinstance(key, str) and key.startswith(".")
                value = self._graph.call_function(
                    *((getattr, (value, key[1:])) if attribute else (operator.getitem, (value, key)))
                )
            return value
        name = getattr(step.target, "__name__", "")
        if name == "__getitem__":
            return self._graph.call_function(operator.getitem, args, kwargs)
        if getattr(torch.Tensor, name, None) is step.target:
            return self._graph.call_method(name, args, kwargs)
        return self._graph.call_function(step.target, args, kwargs)

    def _argument(self, leaf: Any) -> Any:
        match leaf:
            case Ref(step):
                return self._nodes[step]
            case Attribute(path):
                owner, _, name = path.rpartition(".")
                return self._hold(path, getattr(self._model.get_submodule(owner), name), saved=path in self._saved)
            case Constant(tensor):
                held = next((path for path, value in self._held.items() if value is tensor), None)
                return self._hold(held or f"constant_{len(self._held)}", tensor, saved=False)
            case OfBatch(times, plus):
                size: Any = self._graph.call_method("size", (self._input, 0))
                size = size if times == 1 else self._graph.call_function(operator.mul, (size, times))
                return size if plus == 0 else self._graph.call_function(operator.add, (size, plus))
            case OfMode(owner, training, evaluation):
                path = f"{owner}.training" if owner else "training"
                flag = self._hold(path, self._model.get_submodule(owner).training)
                if training is True and evaluation is False:
                    return flag
                return self._graph.call_function(choose, (flag, training, evaluation))
            case ParameterDtype():
                return self._graph.call_function(getattr, (self._like_parameters(), "dtype"))
            case ParameterDevice():
                return self._graph.call_function(getattr, (self._like_parameters(), "device"))
        return leaf

    def _like_parameters(self) -> fx.Node:
        parameter = next((p for p in self._model.parameters() if p.is_floating_point()), torch.empty(0))
        return self._hold(
            LIKE_PARAMETERS, self._held.get(LIKE_PARAMETERS, parameter.new_empty(0).detach()), saved=False
        )

    def _hold(self, path: str, value: Any, *, saved: bool = True) -> fx.Node:
        self._held[path] = value
        if not saved:
            self._unsaved.add(path)
        return self._graph.get_attr(path)

    def finish(self, wanted: int) -> fx.GraphModule:
        self._graph.output(self._nodes[wanted])
        part = fx.GraphModule(self._held, self._graph, class_name="Part")
        for path in self._unsaved:
            owner_path, _, name = path.rpartition(".")
            owner = part.get_submodule(owner_path)
            delattr(owner, name)
            owner.register_buffer(name, self._held[path], persistent=False)
        return part
