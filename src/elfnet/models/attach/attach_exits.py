"""Exits on a backbone that was not written for them."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

from elfnet.errors import RequestError
from elfnet.models.attach.cuts import (
    Cut,
    before_the_head,
    cuts_of,
    even_cuts,
    head_start,
    is_one_call,
    named_cuts,
    no_cut,
    single_live,
)
from elfnet.models.attach.heads import ChannelPlace, HeadBuilder, OriginalHead, early_heads, refuse_mixed_classifiers
from elfnet.models.attach.lower import build_part
from elfnet.models.attach.recorder import logits_in, undisturbed
from elfnet.models.attach.trace import Program, trace
from elfnet.models.layers import BatchNorm2d
from elfnet.models.staged import StagedNetwork

RELATIVE = 1e-4
SEED = 0


@torch.no_grad()
def prove_equal(network: StagedNetwork, original: nn.Module, example: Tensor) -> None:
    """Refuse unless all exits run and the last gives the original's logits, on one example and on several, in
    evaluation mode and (with the same random numbers) in training mode.
    """
    several = example if len(example) > 1 else torch.cat([example, example])
    for images in (several, several[:1]):
        _compare(network, original, images, training=False, run=lambda images: network.logits(images)[-1])
    _compare(network, original, several, training=True, run=lambda images: _last_exit(network, images))


def _last_exit(network: StagedNetwork, images: Tensor) -> Tensor:
    """The early heads left out: they would draw random numbers that the original does not draw."""
    features = images
    for stage in network.stages:
        features = stage(features)
    logits: Tensor = network.heads[-1](features)
    return logits


def _compare(
    network: StagedNetwork, original: nn.Module, images: Tensor, *, training: bool, run: Callable[[Tensor], Tensor]
) -> None:
    results = []
    for module, forward in ((original, original), (network, run)):
        with undisturbed(module):
            module.train(training)
            torch.manual_seed(SEED)
            results.append(logits_in(forward(images.clone())))
    expected, found = results
    mode = "training" if training else "evaluation"
    if expected is None or found is None or expected.shape != found.shape:
        raise RequestError(f"the staged {type(original).__name__} gives no such logits as the original in {mode} mode")
    largest = float((expected - found).abs().max())
    if not largest <= RELATIVE * max(float(expected.abs().max()), 1.0):
        raise RequestError(
            f"the staged {type(original).__name__} differs from the original in {mode} mode (logits by {largest:.2g}); "
            "cut elsewhere, or give the stages by hand with elfnet.from_blocks"
        )


DEFAULT_EXITS = 3


def attach_exits(
    model: nn.Module,
    at: Sequence[str | Cut] | Literal["auto"] = "auto",
    *,
    example: Tensor,
    exits: int | None = None,
    head: str | HeadBuilder = "auto",
    classifier: str = "linear",
    channels: ChannelPlace = "auto",
    classes: int | None = None,
) -> StagedNetwork:
    """A staged network from any image classifier: cut after the modules named, with a new head at each cut.

    The stages hold the model's own parameters and buffers, so training the network trains the model. The model's own
    classifier is the last exit. Proved on the example: the last exit's logits are the model's, in evaluation and in
    training mode.

    Args:
        at: modules after which an exit sits (`legal_cuts` lists them), or `auto`: even shares of the cost.
        example: a batch of inputs on the model's device; two or more differing images prove more. Its image size is
            the network's.
        exits: for `auto`, how many exits in all, the last included (3).
        head: `auto`, `conv`, `separable`, `mean`, `class-token`, or a function from the shape of one example's
            features to a module.
        classifier: of the new heads, `linear` or `cosine`; cosines need a model whose own classifier gives cosines.
        channels: where feature maps have their channels; `auto` tells by which two sides are equal.
        classes: refused unless the model has as many; None: as many as the model has.

    Example:
        >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 6 * 6, 5))
        >>> attach_exits(model, ["1"], example=torch.zeros(2, 3, 8, 8))(torch.zeros(4, 3, 8, 8)).shape
        torch.Size([2, 4, 5])
    """
    if at != "auto" and (isinstance(at, str) or exits not in (None, len(at) + 1)):
        problem = (
            f"at={at!r} must be a list of names or 'auto'"
            if isinstance(at, str)
            else f"exits={exits} and {len(at)} names in at contradict"
        )
        raise RequestError(f"{problem}; exits belongs to at='auto'")
    program = trace(model, example)
    cuts = cuts_of(program, model, example)
    legal = before_the_head(program.recording, cuts)
    if not legal:
        raise no_cut(model, program)
    chosen = (
        even_cuts(legal, DEFAULT_EXITS if exits is None else exits, program.opened)
        if at == "auto"
        else named_cuts(at, legal, program, model)
    )
    found = program.recording.steps[program.recording.output].shape
    assert found is not None, "the logits were checked to be (B, classes)"
    if classes is not None and classes != found[1]:
        raise RequestError(
            f"{type(model).__name__} has {found[1]} classes, not {classes}; give it another classifier first"
        )
    own_head = head_start(program.recording, cuts)
    stages, last = _parts(model, example, program, [*chosen, *([own_head] if own_head else [])], own_head is not None)
    heads = early_heads(stages[:-1], example, found[1], head=head, classifier=classifier, channels=channels)
    _admit_single_examples(model)
    network = StagedNetwork(stages, [*heads, last], classes=found[1])
    if classifier == "cosine":
        refuse_mixed_classifiers(stages, last, example)
    _refuse_shared(network)
    prove_equal(network, model, example)
    with undisturbed(model):
        network.train(model.training)
    return network


def _parts(
    model: nn.Module, example: Tensor, program: Program, cuts: list[Cut], has_head: bool
) -> tuple[list[nn.Module], nn.Module]:
    """The stages, and the model's own head (an identity where it has none that can be told apart)."""
    recording = program.recording
    if all(is_one_call(recording, cut.name) for cut in cuts):
        # Take apart only what is cut; everything else stays a module of its own.
        inside = {
            path
            for path in program.opened
            for start, end in zip(recording.starts[path], recording.ends[path], strict=True)
            if any(start < cut.position < end for cut in cuts)
        }
        recording = trace(model, example, only=frozenset(inside)).recording
        live = dict(single_live(recording))
        places = [(recording.ends[cut.name][0], live[recording.ends[cut.name][0]]) for cut in cuts]
    else:
        places = [(cut.position, cut.step) for cut in cuts]
    places = [(0, 0), *places, (len(recording.steps), recording.output)]
    parts: list[nn.Module] = []
    features = example
    with undisturbed(model), torch.no_grad():
        model.train()
        for (first, given), (last, wanted) in pairwise(places):
            part = build_part(recording, model, first=first, given=given, last=last, wanted=wanted)
            before = features._version
            output = part.train()(features)
            if parts and features._version != before:
                part = build_part(recording, model, first=first, given=given, last=last, wanted=wanted, copy_input=True)
            features = output
            parts.append(part)
    return (parts[:-1], OriginalHead(parts[-1])) if has_head else (parts, nn.Identity())


def _refuse_shared(network: StagedNetwork) -> None:
    """A weight on both sides of a cut would stand in a checkpoint twice."""
    names: dict[int, str] = {}
    for name, tensor in network.state_dict(keep_vars=True).items():
        first = names.setdefault(id(tensor), name)
        if first != name:
            raise RequestError(f"{first} and {name} are one tensor; choose cuts so that one stage has all uses of it")


def _admit_single_examples(model: nn.Module) -> None:
    """When examples leave during training, one may remain on a 1 x 1 map, at which torch's batch norm raises; ours,
    which is the same otherwise, does not.
    """
    for module in model.modules():
        if type(module) is nn.BatchNorm2d:
            module.__class__ = BatchNorm2d
