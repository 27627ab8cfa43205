"""Recording a model by running it: real tensors, real control flow, modules kept whole.

`torch.fx` replaces the input by a symbol, which stops at the first `if` over a shape; `torch.export` freezes whether
dropout and batch norm train. Here the model simply runs. Of the modules that are `opened`, every torch function their
own code calls becomes a step; every other module becomes one step that calls the module itself, so that it goes on
behaving as it does (training mode, hooks, any batch size).
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from elfnet.models.attach.ir import Attribute, Constant, NotRecordableError, Recording, Ref, Step, leaves, map_leaves


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


# Functions that turn a tensor into something Python can decide by: what they decided is not in a recording.
READS_VALUES = frozenset(
    {
        *("__bool__", "__int__", "__float__", "__index__", "__complex__", "__contains__", "__array__"),
        *("item", "tolist", "numpy", "is_nonzero", "equal", "allclose"),
    }
)
PLAIN = (
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
    """`tensor[index] = value`, as a function with a result."""
    tensor[index] = value
    return tensor


class _Recorder(TorchFunctionMode):
    def __init__(self, model: nn.Module, opened: frozenset[str]) -> None:
        super().__init__()
        self.recording = Recording()
        self._opened = opened
        self._registered: dict[int, str] = {}
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            self._registered[id(tensor)] = name
        self._step_of: dict[int, int] = {}
        self._alive: list[Any] = []  # so that no id is used twice
        self._owners: list[str] = []
        self._whole: tuple[str, int, tuple[Any, ...], dict[str, Any], list[tuple[Tensor, int]]] | None = None

    # Steps

    def add(self, step: Step, value: Any) -> int:
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
        return self._owners[-1] if self._owners else ""

    def _refuse(self, reason: str) -> NotRecordableError:
        return NotRecordableError(self.owner, reason)

    def argument(self, value: Any) -> Any:
        """A value as a step refers to it."""
        if isinstance(value, Tensor):
            if id(value) in self._step_of:
                return Ref(self._step_of[id(value)])
            if id(value) in self._registered:
                return Attribute(self._registered[id(value)])
            if value.requires_grad:
                raise self._refuse("it uses a tensor that requires a gradient and is not registered in the model")
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
        if isinstance(value, PLAIN):
            return value
        raise self._refuse(f"it passes a {type(value).__name__} on")

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
            result = self._as_new(result)
        self._add_with_items(step, result)
        return result

    def _as_new(self, result: Any) -> Any:
        """Tensors are told apart by identity, so one that is handed back unchanged (dropout that does not train) is
        wrapped anew: else what came before and after could not be told apart.
        """

        def wrap(leaf: Any) -> Any:
            known = isinstance(leaf, Tensor) and (id(leaf) in self._step_of or id(leaf) in self._registered)
            return leaf.view_as(leaf) if known else leaf

        plain = type(result) in (tuple, list, dict) or isinstance(result, Tensor)
        return map_leaves(result, wrap) if plain else result

    def _refuse_reading(self, name: str, args: tuple[Any, ...]) -> None:
        """Values of constants may be read; the input's and the weights' may change from call to call."""
        for leaf in leaves(args):
            if isinstance(leaf, Tensor):
                found = self.argument(leaf)
                if isinstance(found, Attribute) or self._depends_on_input(found):
                    raise self._refuse(f"it reads a tensor's values ({name.strip('_')}) to decide by")

    # Modules

    def call(self, path: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A module is about to run."""
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
        self._whole = (path, start, self.argument(args), self.argument(kwargs), before)

    def returned(self, path: str, output: Any) -> Any:
        """A module has run; what it returns from here on."""
        if self._whole is not None and self._whole[0] != path:
            return output
        if self._whole is None:
            self._owners.pop()
        else:
            _, start, args, kwargs, before = self._whole
            self._whole = None
            step = Step("module", path, args, kwargs, self.owner, from_input=self._depends_on_input((args, kwargs)))
            step.mutates = any(tensor._version != version for tensor, version in before)
            if not step.mutates:
                output = self._as_new(output)
            self.recording.starts.setdefault(path, []).append(start)
            self._add_with_items(step, output)
        self.recording.ends.setdefault(path, []).append(len(self.recording.steps))
        return output


def record(model: nn.Module, images: Tensor, opened: frozenset[str]) -> Recording:
    """Run the model once, in the mode it is in, and return what ran.

    Raises:
        NotRecordableError: the code of an opened module does something that cannot be repeated from a recording.
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
            "", f"its output is a {type(output).__name__} without logits that its forward computed"
        )
    recorder.recording.output = step
    return recorder.recording


def _hooks(recorder: _Recorder, path: str) -> tuple[Callable[..., None], Callable[..., Any]]:
    def before(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        # What we do with tensors here is none of the model's doing.
        with torch._C.DisableTorchFunction():
            recorder.call(path, args, kwargs)

    def after(_module: nn.Module, _args: tuple[Any, ...], output: Any) -> Any:
        with torch._C.DisableTorchFunction():
            return recorder.returned(path, output)

    return before, after


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """Modes, buffers (batch-norm statistics) and the random state are afterwards what they were before."""
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
