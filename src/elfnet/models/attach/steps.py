"""What a recorded model is made of: steps in the order they ran, and what they refer to."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import Tensor


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
