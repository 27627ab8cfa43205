"""Record the forward pass of a model by running it with real tensors and real control flow.

`torch.fx` replaces the input by a symbol and fails at the first `if` over a shape. `torch.export` fixes the mode of
dropout and batch norm. Here the model simply runs. For modules that are `opened`, every torch function that their own
code calls becomes a step. Every other module becomes one step that calls the module itself, so its behaviour does not
change (training mode, hooks, any batch size).
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from elfnet.models.attach.ir import Attribute, Constant, NotRecordableError, Recording, Ref, Step, leaves, map_leaves


def tensors_in(value: Any, keys: tuple[Any, ...] = ()) -> list[tuple[tuple[Any, ...], Tensor]]:
    """The tensors inside a container, with the keys that lead to them; empty if the value is itself a tensor."""
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
    """The logits in a model's output: the output itself, or its attribute `logits`; None if there are none."""
    logits = output if isinstance(output, Tensor) else getattr(output, "logits", None)
    return logits if isinstance(logits, Tensor) else None


# Functions that make values of a tensor available to Python. Decisions based on them are not part of a recording.
READS_VALUES = frozenset(
    {
        *("__bool__", "__int__", "__float__", "__index__", "__complex__", "__contains__", "__array__"),
        *("item", "tolist", "numpy", "is_nonzero", "equal", "allclose"),
    }
)
PLAIN_TYPES = (
    str,
    int,
    float,
    complex,
    torch.dtype,
    torch.device,
    torch.memory_format,
    torch.layout,
    range,
    type(None),
    type(Ellipsis),
)


def set_item(tensor: Tensor, index: Any, value: Any) -> Tensor:
    """`tensor[index] = value` as a function that returns the tensor."""
    tensor[index] = value
    return tensor


class _WholeCall(NamedTuple):
    """The call of a module that is not opened, while it runs.

    Attributes:
        start: the number of steps before the call.
        versions: tensors among the arguments, with their versions before the call.
    """

    path: str
    start: int
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    versions: list[tuple[Tensor, int]]


class _Recorder(TorchFunctionMode):
    """Appends a step to a recording for each torch function and for each module that is not opened."""

    def __init__(self, model: nn.Module, opened: frozenset[str]) -> None:
        super().__init__()
        self.recording = Recording()
        self._opened = opened
        self._registered: dict[int, str] = {}
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            self._registered[id(tensor)] = name
        self._step_of: dict[int, int] = {}
        self._alive: list[Any] = []  # keeps values alive, so that no id is used twice
        self._owners: list[str] = []
        self._whole: _WholeCall | None = None

    # Steps

    def add(self, step: Step, value: Any) -> int:
        """Append a step that returned `value`; return its index."""
        steps = self.recording.steps
        steps.append(step)
        self._alive.append(value)
        if isinstance(value, Tensor):
            step.shape, step.floating = tuple(value.shape), value.is_floating_point()
            self._step_of[id(value)] = len(steps) - 1
        return len(steps) - 1

    def _add_with_items(self, step: Step, value: Any) -> None:
        index = self.add(step, value)
        for keys, tensor in tensors_in(value):
            item = Step("item", keys, (Ref(index),), {}, step.owner, from_input=step.from_input)
            self.add(item, tensor)

    @property
    def owner(self) -> str:
        """The path of the opened module whose code is running; "" for the model itself."""
        return self._owners[-1] if self._owners else ""

    def _refuse(self, reason: str) -> NotRecordableError:
        return NotRecordableError(self.owner, reason)

    def argument(self, value: Any) -> Any:
        """Convert an argument to the form in which steps store it."""
        if isinstance(value, Tensor):
            if id(value) in self._step_of:
                return Ref(self._step_of[id(value)])
            if id(value) in self._registered:
                return Attribute(self._registered[id(value)])
            if value.requires_grad:
                raise self._refuse("it uses a tensor that requires a gradient and is not a parameter of the model")
            self._alive.append(value)
            return Constant(value)
        if type(value) in (tuple, torch.Size):
            return tuple(self.argument(item) for item in value)
        if type(value) is list:
            return [self.argument(item) for item in value]
        if type(value) is dict:
            return {key: self.argument(item) for key, item in value.items()}
        if type(value) is slice:
            return slice(*(self.argument(item) for item in (value.start, value.stop, value.step)))
        if isinstance(value, PLAIN_TYPES):
            return value
        raise self._refuse(f"it passes a {type(value).__name__} to a function or module")

    def _depends_on_input(self, arguments: Any) -> bool:
        steps = self.recording.steps
        return any(isinstance(leaf, Ref) and steps[leaf.step].from_input for leaf in leaves(arguments))

    # Functions

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if self._whole is not None:
            return func(*args, **kwargs)
        name = getattr(func, "__name__", str(func))
        if name in READS_VALUES:
            self._refuse_reading(name, args)
        if name == "__set__":
            raise self._refuse(f"it sets .{func.__self__.__name__} of a tensor")
        before = [(tensor, tensor._version) for tensor in leaves((args, kwargs)) if isinstance(tensor, Tensor)]
        result = func(*args, **kwargs)
        if name == "__setitem__":
            func, result = set_item, args[0]
        elif name == "__get__":
            func, args = getattr, (args[0], func.__self__.__name__)
        elif not any(isinstance(leaf, Tensor) for leaf in leaves(result)):
            return result
        if not any(isinstance(leaf, Tensor) for leaf in leaves(result)):
            return result
        arguments = (self.argument(args), self.argument(kwargs))
        from_input = self._depends_on_input(arguments)
        if from_input and (not torch.is_grad_enabled() or torch.is_autocast_enabled(before[0][0].device.type)):
            raise self._refuse("it switches gradients off or autocast on")
        step = Step("function", func, *arguments, self.owner, from_input=from_input)
        step.mutates = any(tensor._version != version for tensor, version in before)
        if not step.mutates:
            result = self._with_new_ids(result)
        self._add_with_items(step, result)
        return result

    def _with_new_ids(self, result: Any) -> Any:
        """Return new tensor objects for tensors that were returned unchanged, such as by dropout in evaluation mode.

        Tensors are identified by `id`, so input and output of a step must be different objects.
        """

        def wrap(leaf: Any) -> Any:
            known = isinstance(leaf, Tensor) and (id(leaf) in self._step_of or id(leaf) in self._registered)
            return leaf.view_as(leaf) if known else leaf

        plain = type(result) in (tuple, list, dict) or isinstance(result, Tensor)
        return map_leaves(result, wrap) if plain else result

    def _refuse_reading(self, name: str, args: tuple[Any, ...]) -> None:
        """Refuse code that reads values of the input or the weights, which may change between calls."""
        for leaf in leaves(args):
            if isinstance(leaf, Tensor):
                found = self.argument(leaf)
                if isinstance(found, Attribute) or self._depends_on_input(found):
                    raise self._refuse(f"it reads a tensor's values ({name.strip('_')})")

    # Modules

    def enter_module(self, path: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Record that a module is about to run."""
        if self._whole is not None:
            return
        if path in self._opened:
            self.recording.starts.setdefault(path, []).append(len(self.recording.steps))
            self._owners.append(path)
            return
        if not torch.is_grad_enabled() or any(
            torch.is_autocast_enabled(leaf.device.type) for leaf in leaves((args, kwargs)) if isinstance(leaf, Tensor)
        ):
            raise self._refuse("it switches gradients off or autocast on")
        start = len(self.recording.steps)
        before = [(tensor, tensor._version) for tensor in leaves((args, kwargs)) if isinstance(tensor, Tensor)]
        self._whole = _WholeCall(path, start, self.argument(args), self.argument(kwargs), before)

    def leave_module(self, path: str, output: Any) -> Any:
        """Record that a module has run, and return the output that replaces its own."""
        if self._whole is not None and self._whole.path != path:
            return output
        if self._whole is None:
            self._owners.pop()
        else:
            _, start, args, kwargs, before = self._whole
            self._whole = None
            step = Step("module", path, args, kwargs, self.owner, from_input=self._depends_on_input((args, kwargs)))
            step.mutates = any(tensor._version != version for tensor, version in before)
            if not step.mutates:
                output = self._with_new_ids(output)
            self.recording.starts.setdefault(path, []).append(start)
            self._add_with_items(step, output)
        self.recording.ends.setdefault(path, []).append(len(self.recording.steps))
        return output


def record(model: nn.Module, images: Tensor, opened: frozenset[str]) -> Recording:
    """Run the model once, in its current mode, and return the recording.

    Args:
        opened: paths of the modules whose own code is recorded step by step.

    Raises:
        NotRecordableError: the code of an opened module does something that a recording cannot reproduce.
    """
    recorder = _Recorder(model, opened)
    recorder.add(Step("input", "images", (), {}, "", from_input=True), images)
    with ExitStack() as hooks:
        for path, module in model.named_modules():
            if path:
                before, after = _hooks(recorder, path)
                hooks.callback(module.register_forward_pre_hook(before, prepend=True, with_kwargs=True).remove)
                hooks.callback(module.register_forward_hook(after).remove)
        with torch.enable_grad(), recorder:
            output = model(images)
    logits = logits_in(output)
    step = None if logits is None else recorder._step_of.get(id(logits))
    if step is None:
        raise NotRecordableError(
            "", f"its output is a {type(output).__name__} without logits, or its forward did not compute them"
        )
    recorder.recording.output = step
    return recorder.recording


def _hooks(recorder: _Recorder, path: str) -> tuple[Callable[..., None], Callable[..., Any]]:
    def before(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        # Tensor operations of the recorder itself are not recorded.
        with torch._C.DisableTorchFunction():
            recorder.enter_module(path, args, kwargs)

    def after(_module: nn.Module, _args: tuple[Any, ...], output: Any) -> Any:
        with torch._C.DisableTorchFunction():
            return recorder.leave_module(path, output)

    return before, after


@contextmanager
def restored_state(model: nn.Module) -> Iterator[None]:
    """Restore modes, buffers (batch-norm statistics) and the random state on exit."""
    modes = [(module, module.training) for module in model.modules()]
    buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    devices = {parameter.device for parameter in model.parameters() if parameter.device.type == "cuda"}
    try:
        with torch.random.fork_rng(devices=sorted(device.index or 0 for device in devices)):
            yield
    finally:
        for module, training in modes:
            module.training = training
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)
