"""Which modules to open: only those inside which a cut could be legal, and whose code can be recorded."""

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from elfnet.errors import RequestError
from elfnet.models.attach.ir import BATCH, OTHER_BATCH, NotRecordableError, Recording, agree
from elfnet.models.attach.recorder import logits_in, record, undisturbed

BY_HAND = "give its stages by hand with elfnet.from_blocks"


@dataclass(frozen=True)
class Program:
    """A model as steps that can be repeated.

    Attributes:
        opened: modules whose own code was taken apart.
        kept_whole: modules that were not opened although a cut might lie inside, with the reason.
    """

    recording: Recording
    opened: frozenset[str]
    kept_whole: dict[str, str]


def trace(model: nn.Module, example: Tensor, *, only: frozenset[str] | None = None) -> Program:
    """Record the model so deep that every legal cut lies between two steps.

    Args:
        only: open just these modules; what is kept whole stays more like the original (hooks, checkpointing).
    """
    modules = dict(model.named_modules())
    opened = frozenset[str]() if only is None else only
    kept_whole: dict[str, str] = {}
    with undisturbed(model):
        _refuse_example(model, example)
        while True:
            try:
                recording = record(model.eval(), _rows(example, BATCH), opened)
                more = _worth_opening(recording, modules) - opened - kept_whole.keys()
                if not more or only is not None:
                    return Program(_agreed(model, example, recording, opened), opened, kept_whole)
                opened |= more
            except NotRecordableError as error:
                if not error.owner:
                    name = type(model).__name__
                    raise RequestError(f"{name} cannot be taken apart: {error.reason}; {BY_HAND}") from None
                for path in _of_the_same_kind(error.owner, modules) | {error.owner}:
                    kept_whole[path] = error.reason
                opened -= kept_whole.keys()
                # What lay inside is reached no more.
                opened = frozenset(p for p in opened if not any(p.startswith(f"{closed}.") for closed in kept_whole))


def _refuse_example(model: nn.Module, example: Tensor) -> None:
    if not isinstance(example, Tensor) or example.dim() < 2 or len(example) == 0 or example.dtype != torch.float32:
        found = f"{example.dtype} {tuple(example.shape)}" if isinstance(example, Tensor) else type(example).__name__
        raise RequestError(f"example must be a batch of inputs, a float32 tensor such as (B, C, H, W), not {found}")
    name = type(model).__name__
    try:
        with torch.no_grad():
            model.train()(_rows(example, BATCH))
            output = model.eval()(example)
    # Whatever a foreign model raises means the same: this is not an input for it.
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise RequestError(
            f"{name} does not run on an example of shape {tuple(example.shape)}: {type(error).__name__}: {reason}"
        ) from error
    logits = logits_in(output)
    if logits is None:
        raise RequestError(
            f"{name} returns a {type(output).__name__}; it must return a tensor of logits, or have .logits"
        )
    if logits.dim() != 2 or len(logits) != len(example):
        raise RequestError(f"{name} returns logits of shape {tuple(logits.shape)}; they must be (B, classes)")


def _rows(example: Tensor, rows: int) -> Tensor:
    """The first rows of the example, from the start again where it is shorter."""
    return example.detach()[torch.arange(rows, device=example.device) % len(example)]


def _agreed(model: nn.Module, example: Tensor, base: Recording, opened: frozenset[str]) -> Recording:
    # Other values too: what stays the same although it must not was not computed from the input.
    batch = record(model.eval(), _rows(example, OTHER_BATCH).flip(0) * 0.5, opened)
    training = record(model.train(), _rows(example, BATCH), opened)
    model.eval()
    return agree(base, batch, training, _in_another_precision(model, example, opened) or base)


def _in_another_precision(model: nn.Module, example: Tensor, opened: frozenset[str]) -> Recording | None:
    """None for a model that runs in its own precision only."""
    parameter = next((p for p in model.parameters() if p.is_floating_point()), example)
    dtype = torch.float64 if parameter.dtype != torch.float64 else torch.float32
    try:
        other = copy.deepcopy(model).to(dtype)
        images = _rows(example, BATCH).to(dtype)
        with torch.no_grad():
            other(images)
    # Foreign code: whatever it raises, the model cannot do this, and need not.
    except Exception:
        return None
    return record(other, images, opened)


def _worth_opening(recording: Recording, modules: dict[str, nn.Module]) -> frozenset[str]:
    """Modules with parts, called while nothing else is waiting to be used: elsewhere no inner cut can be legal."""
    last_use = recording.last_use()
    worth = set()
    waiting = -1  # the last step that reads a value computed so far
    for index, step in enumerate(recording.steps):
        if step.kind == "module" and waiting <= index and any(True for _ in modules[step.target].children()):
            worth.add(step.target)
        if step.from_input:
            waiting = max(waiting, last_use[index])
    return frozenset(worth)


def _of_the_same_kind(owner: str, modules: dict[str, nn.Module]) -> set[str]:
    """Modules that run the same code will fail the same way; torch's containers have no code of their own."""
    kind = type(modules[owner])
    if kind.__module__.startswith("torch.nn."):
        return set()
    return {path for path, module in modules.items() if type(module) is kind and path}
