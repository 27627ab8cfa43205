"""Lower a part of a recording to a torch module: an fx graph from one tensor to one tensor.

The module holds the parameters, buffers and submodules of the original model under their original paths. So the
state-dict keys of a stage are those of the original.
"""

import operator
from typing import Any

import torch
from torch import fx, nn

from elfnet.models.attach.ir import (
    Attribute,
    BatchDependent,
    Constant,
    ModeDependent,
    ParameterDevice,
    ParameterDtype,
    Recording,
    Ref,
    Step,
    is_attribute_key,
    map_leaves,
)

LIKE_PARAMETERS = "like_parameters"
"""The name of an empty buffer from which a stage reads the dtype and device of the parameters."""


def select_by_mode(training: bool, in_training: Any, in_evaluation: Any) -> Any:
    """Return the value for the current mode; called from the graphs."""
    return in_training if training else in_evaluation


def build_part(
    recording: Recording,
    model: nn.Module,
    *,
    first: int,
    input_step: int,
    last: int,
    output_step: int,
    copy_input: bool = False,
) -> fx.GraphModule:
    """Build a module that maps the value of one step to the value of another.

    Args:
        first: the first step of the part.
        input_step: the step whose value is the input.
        last: the end of the part, exclusive.
        output_step: the step whose value is the output.
        copy_input: clone the input first. Needed if the part changes its input in place, since the head at that input
            may still need it for gradients.
    """
    builder = _GraphBuilder(recording, model, input_step)
    builder.begin(copy_input)
    for index in sorted(_needed(recording, first, last, input_step, output_step)):
        builder.add(index)
    return builder.finish(output_step)


def _needed(recording: Recording, first: int, last: int, input_step: int, output_step: int) -> set[int]:
    """The steps that the part must run.

    These are the steps that its output depends on, steps with side effects (modules, changes in place), and steps that
    compute constants, wherever they are.
    """
    steps = recording.steps
    own_steps = [i for i in range(first, last) if steps[i].from_input and i != input_step]
    needed = {output_step} | {i for i in own_steps if steps[i].kind == "module" or steps[i].mutates}
    changing = {i: _sources(recording, i) for i, step in enumerate(steps) if step.mutates and not step.from_input}
    frontier = needed - {input_step}
    needed = set()
    while frontier:
        needed |= frontier
        read = {ref for index in frontier for ref in steps[index].refs()}
        # Constants that are filled in place through a view.
        read |= {i for i, sources in changing.items() if sources & needed}
        frontier = read - needed - {input_step}
    assert all(first <= i < last for i in needed if steps[i].from_input), "more than one tensor is live at a cut"
    return needed


def _sources(recording: Recording, index: int) -> set[int]:
    """All steps that the value of this step depends on."""
    found, frontier = set[int](), set(recording.steps[index].refs())
    while frontier:
        found |= frontier
        frontier = {ref for i in frontier for ref in recording.steps[i].refs()} - found
    return found


class _GraphBuilder:
    """Builds the fx graph of a part, step by step."""

    def __init__(self, recording: Recording, model: nn.Module, input_step: int) -> None:
        self._recording, self._model, self._input_step = recording, model, input_step
        self._graph = fx.Graph()
        self._nodes: dict[int, Any] = {}
        self._attributes: dict[str, Any] = {}  # modules and tensors of the graph, by path
        self._not_in_state: set[str] = set()  # paths that do not belong to the state dict
        self._input: Any = None
        self._state_keys = model.state_dict().keys()

    def begin(self, copy_input: bool) -> None:
        """Add the input."""
        self._input = self._graph.placeholder("features")
        self._nodes[self._input_step] = self._graph.call_method("clone", (self._input,)) if copy_input else self._input

    def add(self, index: int) -> None:
        """Add a step."""
        step = self._recording.steps[index]
        args, kwargs = map_leaves(step.args, self._argument), map_leaves(step.kwargs, self._argument)
        self._nodes[index] = self._call(step, args, kwargs)

    def _call(self, step: Step, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if step.kind == "module":
            self._attributes[step.target] = self._model.get_submodule(step.target)
            return self._graph.call_module(step.target, args, kwargs)
        if step.kind == "item":
            value = args[0]
            for key in step.target:
                value = self._graph.call_function(
                    *((getattr, (value, key[1:])) if is_attribute_key(key) else (operator.getitem, (value, key)))
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
                return self._attribute(
                    path, getattr(self._model.get_submodule(owner), name), in_state=path in self._state_keys
                )
            case Constant(tensor):
                known_path = next((path for path, value in self._attributes.items() if value is tensor), None)
                return self._attribute(known_path or f"constant_{len(self._attributes)}", tensor, in_state=False)
            case BatchDependent(times, plus):
                size: Any = self._graph.call_method("size", (self._input, 0))
                size = size if times == 1 else self._graph.call_function(operator.mul, (size, times))
                return size if plus == 0 else self._graph.call_function(operator.add, (size, plus))
            case ModeDependent(owner, training, evaluation):
                path = f"{owner}.training" if owner else "training"
                flag = self._attribute(path, self._model.get_submodule(owner).training)
                if training is True and evaluation is False:
                    return flag
                return self._graph.call_function(select_by_mode, (flag, training, evaluation))
            case ParameterDtype():
                return self._graph.call_function(getattr, (self._like_parameters(), "dtype"))
            case ParameterDevice():
                return self._graph.call_function(getattr, (self._like_parameters(), "device"))
        return leaf

    def _like_parameters(self) -> fx.Node:
        parameter = next((p for p in self._model.parameters() if p.is_floating_point()), torch.empty(0))
        return self._attribute(
            LIKE_PARAMETERS, self._attributes.get(LIKE_PARAMETERS, parameter.new_empty(0).detach()), in_state=False
        )

    def _attribute(self, path: str, value: Any, *, in_state: bool = True) -> fx.Node:
        self._attributes[path] = value
        if not in_state:
            self._not_in_state.add(path)
        return self._graph.get_attr(path)

    def finish(self, output_step: int) -> fx.GraphModule:
        """Add the output and build the module."""
        self._graph.output(self._nodes[output_step])
        part = fx.GraphModule(self._attributes, self._graph, class_name="Part")
        for path in self._not_in_state:
            owner_path, _, name = path.rpartition(".")
            owner = part.get_submodule(owner_path)
            delattr(owner, name)
            owner.register_buffer(name, self._attributes[path], persistent=False)
        return part
