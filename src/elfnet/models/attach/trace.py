"""Trace a model: record it in enough detail that every legal cut lies between two steps.

Only modules inside which a cut could be legal are opened, and only if their code can be recorded. Several recordings
are compared, so that the result is valid for any batch size, mode, precision and device.
"""

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from elfnet.errors import RequestError
from elfnet.models.attach.ir import BATCH_SIZE, OTHER_BATCH_SIZE, NotRecordableError, Recording, merge_recordings
from elfnet.models.attach.recorder import logits_in, record, restored_state

BY_HAND = "give its stages by hand with elfnet.from_blocks"


@dataclass(frozen=True)
class Program:
    """A model as a recording that reproduces it.

    Attributes:
        recording: the steps, independent of batch size, mode, precision and device.
        opened: the modules whose own code was recorded step by step.
        kept_whole: modules that could not be opened although a cut could lie inside, with the reason.
    """

    recording: Recording
    opened: frozenset[str]
    kept_whole: dict[str, str]


def trace(model: nn.Module, example: Tensor, *, only: frozenset[str] | None = None) -> Program:
    """Record the model in enough detail that every legal cut lies between two steps.

    Args:
        example: a batch of inputs on the model's device.
        only: open these modules only. A module that is not opened keeps its hooks and gradient checkpointing.

    Raises:
        RequestError: the model does not run on the example, does not return logits, or cannot be recorded.
    """
    modules = dict(model.named_modules())
    opened = frozenset[str]() if only is None else only
    kept_whole: dict[str, str] = {}
    with restored_state(model):
        _check_example(model, example)
        while True:
            try:
                recording = record(model.eval(), _first_rows(example, BATCH_SIZE), opened)
                more = _modules_to_open(recording, modules) - opened - kept_whole.keys()
                if not more or only is not None:
                    return Program(_merged_recording(model, example, recording, opened), opened, kept_whole)
                opened |= more
            except NotRecordableError as error:
                if not error.owner:
                    name = type(model).__name__
                    raise RequestError(f"{name} cannot be taken apart: {error.reason}; {BY_HAND}") from None
                for path in _modules_of_same_class(error.owner, modules) | {error.owner}:
                    kept_whole[path] = error.reason
                opened -= kept_whole.keys()
                # Modules inside these are not called by recorded code any more.
                opened = frozenset(p for p in opened if not any(p.startswith(f"{closed}.") for closed in kept_whole))


def _check_example(model: nn.Module, example: Tensor) -> None:
    if not isinstance(example, Tensor) or example.dim() < 2 or len(example) == 0 or example.dtype != torch.float32:
        found = f"{example.dtype} {tuple(example.shape)}" if isinstance(example, Tensor) else type(example).__name__
        raise RequestError(f"example must be a batch of inputs, a float32 tensor such as (B, C, H, W), not {found}")
    name = type(model).__name__
    try:
        with torch.no_grad():
            model.train()(_first_rows(example, BATCH_SIZE))
            output = model.eval()(example)
    # A model may raise anything; in any case the example is not a valid input for it.
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


def _first_rows(example: Tensor, rows: int) -> Tensor:
    """The first rows of the example, repeated if it has fewer."""
    return example.detach()[torch.arange(rows, device=example.device) % len(example)]


def _merged_recording(model: nn.Module, example: Tensor, base: Recording, opened: frozenset[str]) -> Recording:
    # Other values, too: a tensor that should change with the input but does not was not computed by recorded steps.
    batch = record(model.eval(), _first_rows(example, OTHER_BATCH_SIZE).flip(0) * 0.5, opened)
    training = record(model.train(), _first_rows(example, BATCH_SIZE), opened)
    model.eval()
    return merge_recordings(base, batch, training, _record_in_other_precision(model, example, opened) or base)


def _record_in_other_precision(model: nn.Module, example: Tensor, opened: frozenset[str]) -> Recording | None:
    """A recording with parameters of another dtype; None if the model does not run with it."""
    parameter = next((p for p in model.parameters() if p.is_floating_point()), example)
    dtype = torch.float64 if parameter.dtype != torch.float64 else torch.float32
    try:
        other = copy.deepcopy(model).to(dtype)
        images = _first_rows(example, BATCH_SIZE).to(dtype)
        with torch.no_grad():
            other(images)
    # A model may raise anything here. It need not support another dtype.
    except Exception:
        return None
    return record(other, images, opened)


def _modules_to_open(recording: Recording, modules: dict[str, nn.Module]) -> frozenset[str]:
    """Modules with submodules that are called while no other tensor is live: only inside these a cut can be legal."""
    last_use = recording.last_use()
    worth = set()
    live_until = -1  # the last step that reads a value computed so far
    for index, step in enumerate(recording.steps):
        if step.kind == "module" and live_until <= index and any(True for _ in modules[step.target].children()):
            worth.add(step.target)
        if step.from_input:
            live_until = max(live_until, last_use[index])
    return frozenset(worth)


def _modules_of_same_class(owner: str, modules: dict[str, nn.Module]) -> set[str]:
    """Modules of the same class, which would fail for the same reason; none for torch's containers."""
    kind = type(modules[owner])
    if kind.__module__.startswith("torch.nn."):
        return set()
    return {path for path, module in modules.items() if type(module) is kind and path}
