"""Turn an image classifier into a staged network with exits.

`attach_exits` finds the cuts itself and checks that the logits stay the same. `from_blocks` takes modules given by
hand, for models that `attach_exits` cannot take apart.
"""

import logging
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

from elfnet.errors import RequestError
from elfnet.models.attach.cuts import (
    Cut,
    cuts_before_head,
    even_cuts,
    find_cuts,
    head_start,
    is_one_call,
    named_cuts,
    no_cut_error,
    single_live_steps,
)
from elfnet.models.attach.heads import ChannelPlace, HeadBuilder, OriginalHead, early_heads, refuse_mixed_classifiers
from elfnet.models.attach.lower import build_part
from elfnet.models.attach.recorder import logits_in, restored_state
from elfnet.models.attach.trace import Program, trace
from elfnet.models.flops import costly_exits, count_cost, flop_counter
from elfnet.models.staged import BatchNorm2d, StagedNetwork

_log = logging.getLogger("elfnet.models")

DEFAULT_EXITS = 3
RELATIVE_TOLERANCE = 1e-4
"""The largest difference of logits that counts as equal, relative to the largest logit (at least 1)."""
SEED = 0
"""The seed for comparing models in training mode, where both must draw the same random numbers."""


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
    """Turn an image classifier into a staged network: cut it after some modules, with a new head at each cut.

    The stages hold the model's own parameters and buffers, so training the network trains the model. The model's own
    classifier is the last exit. It is checked on `example` that the logits of the last exit are those of the model, in
    evaluation and in training mode.

    Args:
        model: the classifier; it must return logits (B, C), or an object with `.logits`.
        at: names of modules after which an exit is attached (`legal_cuts` lists them). With `auto`, the cuts divide the
            cost of the model into equal parts.
        example: a batch of inputs on the model's device. Two or more different images make the check stronger. The
            network is built for images of this size.
        exits: the number of exits for `auto`, including the last one (default 3).
        head: the kind of the new heads: `auto`, `conv`, `separable`, `mean`, `class-token`, or a function from the
            shape of one example's features to a module.
        classifier: the classifier of the new heads, `linear` or `cosine`. `cosine` needs a model whose own classifier
            returns cosines.
        channels: the position of the channels in feature maps, `first` or `last`; `auto` decides by which two
            dimensions are equal.
        classes: the expected number of classes; None to accept any.

    Returns:
        The network, in the mode (training or evaluation) of the model.

    Raises:
        RequestError: an argument is wrong, the model cannot be cut there, or the logits differ.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from elfnet import attach_exits
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
        raise RequestError(f"{problem}; use exits only with at='auto'")
    program = trace(model, example)
    cuts = find_cuts(program, model, example)
    legal = cuts_before_head(program.recording, cuts)
    if not legal:
        raise no_cut_error(model, program)
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
    stages, last = _build_stages(
        model, example, program, [*chosen, *([own_head] if own_head else [])], own_head is not None
    )
    heads = early_heads(stages[:-1], example, found[1], head=head, classifier=classifier, channels=channels)
    _replace_batch_norms(model)
    network = StagedNetwork(stages, [*heads, last], classes=found[1])
    if classifier == "cosine":
        refuse_mixed_classifiers(stages, last, example)
    _refuse_shared_tensors(network)
    prove_equal(network, model, example)
    if example.ndim == 4:
        channels_in, height, width = example.shape[1:]
        for text in costly_exits(count_cost(network, (channels_in, height, width))):
            _log.warning("%s", text)
    with restored_state(model):
        network.train(model.training)
    return network


def _build_stages(
    model: nn.Module, example: Tensor, program: Program, cuts: list[Cut], has_head: bool
) -> tuple[list[nn.Module], nn.Module]:
    """The stages, and the model's own head; an identity if the head cannot be separated from the last stage."""
    recording = program.recording
    if all(is_one_call(recording, cut.name) for cut in cuts):
        # Open only the modules that contain a cut. All others stay modules.
        inside = {
            path
            for path in program.opened
            for start, end in zip(recording.starts[path], recording.ends[path], strict=True)
            if any(start < cut.position < end for cut in cuts)
        }
        recording = trace(model, example, only=frozenset(inside)).recording
        live = dict(single_live_steps(recording))
        places = [(recording.ends[cut.name][0], live[recording.ends[cut.name][0]]) for cut in cuts]
    else:
        places = [(cut.position, cut.step) for cut in cuts]
    places = [(0, 0), *places, (len(recording.steps), recording.output)]
    parts: list[nn.Module] = []
    features = example
    with restored_state(model), torch.no_grad():
        model.train()
        for (first, input_step), (last, output_step) in pairwise(places):
            part = build_part(recording, model, first=first, input_step=input_step, last=last, output_step=output_step)
            before = features._version
            output = part.train()(features)
            if parts and features._version != before:
                part = build_part(
                    recording,
                    model,
                    first=first,
                    input_step=input_step,
                    last=last,
                    output_step=output_step,
                    copy_input=True,
                )
            features = output
            parts.append(part)
    return (parts[:-1], OriginalHead(parts[-1])) if has_head else (parts, nn.Identity())


def _refuse_shared_tensors(network: StagedNetwork) -> None:
    """Refuse a tensor that two stages use: a checkpoint would contain it twice."""
    names: dict[int, str] = {}
    for name, tensor in network.state_dict(keep_vars=True).items():
        first = names.setdefault(id(tensor), name)
        if first != name:
            raise RequestError(f"{first} and {name} are one tensor; choose cuts so that only one stage uses it")


def _replace_batch_norms(model: nn.Module) -> None:
    """Let batch norms accept a single value per channel in training.

    If examples stop at early exits during training, one example may remain on a 1 x 1 map. torch's batch norm raises
    an error there; ours does not, and is otherwise the same.
    """
    for module in model.modules():
        if type(module) is nn.BatchNorm2d:
            module.__class__ = BatchNorm2d


@torch.no_grad()
def prove_equal(network: StagedNetwork, original: nn.Module, example: Tensor) -> None:
    """Check that the last exit returns the logits of the original model.

    They are compared for one example and for several, in evaluation mode, and in training mode with equal random
    numbers. All exits are run.

    Raises:
        RequestError: the logits differ.
    """
    several = example if len(example) > 1 else torch.cat([example, example])
    for images in (several, several[:1]):
        _require_equal_logits(network, original, images, training=False, run=lambda images: network.logits(images)[-1])
    _require_equal_logits(network, original, several, training=True, run=lambda images: _last_exit(network, images))


def _last_exit(network: StagedNetwork, images: Tensor) -> Tensor:
    """The logits of the last exit, without the early heads: these would draw random numbers of their own."""
    features = images
    for stage in network.stages:
        features = stage(features)
    logits: Tensor = network.heads[-1](features)
    return logits


def _require_equal_logits(
    network: StagedNetwork, original: nn.Module, images: Tensor, *, training: bool, run: Callable[[Tensor], Tensor]
) -> None:
    results = []
    for module, forward in ((original, original), (network, run)):
        with restored_state(module):
            module.train(training)
            torch.manual_seed(SEED)
            results.append(logits_in(forward(images.clone())))
    expected, found = results
    mode = "training" if training else "evaluation"
    if expected is None or found is None or expected.shape != found.shape:
        raise RequestError(
            f"the staged {type(original).__name__} returns logits of another shape than the original in {mode} mode"
        )
    largest = float((expected - found).abs().max())
    if not largest <= RELATIVE_TOLERANCE * max(float(expected.abs().max()), 1.0):
        raise RequestError(
            f"the staged {type(original).__name__} differs from the original in {mode} mode (logits by {largest:.2g}); "
            "cut elsewhere, or give the stages by hand with elfnet.from_blocks"
        )


def from_blocks(
    stem: nn.Module,
    blocks: Sequence[nn.Module],
    head: nn.Module,
    at: Sequence[int] | Literal["auto"] = "auto",
    *,
    example: Tensor,
    exits: int | None = None,
    exit_head: str | HeadBuilder = "auto",
    classifier: str = "linear",
    channels: ChannelPlace = "auto",
    same_as: nn.Module | None = None,
) -> StagedNetwork:
    """Build a staged network from modules that run one after the other; each maps one tensor to one tensor.

    Args:
        stem: the module from images to the first features.
        blocks: the modules between stem and head.
        head: the module from the last features to logits (B, C). It is the last exit.
        at: the number of blocks before each exit; 0 is directly after the stem. With `auto`, the exits divide the cost
            of the model into equal parts.
        example: a batch of inputs on the device of the modules.
        exits: the number of exits for `auto`, including the last one (default 3).
        exit_head: the kind of the new heads; see `head` of `attach_exits`.
        classifier: the classifier of the new heads; see `attach_exits`.
        channels: the position of the channels in feature maps; see `attach_exits`.
        same_as: a model whose logits the last exit must return.

    Raises:
        RequestError: an argument is wrong, or the logits differ from those of `same_as`.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from elfnet import from_blocks
        >>> blocks = [nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(4)]
        >>> network = from_blocks(nn.Linear(5, 8), blocks, nn.Linear(8, 3), [0, 2], example=torch.zeros(2, 5))
        >>> network.exits
        3
    """
    shares, classes = _measure_modules([stem, *blocks], head, example)
    if at == "auto":
        places = [
            Cut(str(done), (str(done),), (), share, done, done)
            for done, share in enumerate(shares)
            if share > 0 and done < len(blocks)
        ]
        at = [cut.position for cut in even_cuts(places, DEFAULT_EXITS if exits is None else exits)]
    elif exits not in (None, len(at) + 1):
        raise RequestError(f"exits={exits} and {len(at)} numbers in at contradict; use exits only with at='auto'")
    wrong = [done for done in at if not 0 <= done < len(blocks)]
    if wrong or not at or sorted(set(at)) != list(at):
        raise RequestError(f"at={list(at)} must be increasing numbers of blocks in 0..{len(blocks) - 1}, one per exit")
    modules = [stem, *blocks]
    edges = [0, *(done + 1 for done in at), len(modules)]
    stages: list[nn.Module] = [nn.Sequential(*modules[first:last]) for first, last in pairwise(edges)]
    heads = early_heads(stages[:-1], example, classes, head=exit_head, classifier=classifier, channels=channels)
    last_head = OriginalHead(head)
    if classifier == "cosine":
        refuse_mixed_classifiers(stages, last_head, example)
    network = StagedNetwork(stages, [*heads, last_head], classes=classes)
    if same_as is not None:
        prove_equal(network, same_as, example)
    return network


@torch.no_grad()
def _measure_modules(modules: Sequence[nn.Module], head: nn.Module, example: Tensor) -> tuple[list[float], int]:
    """The fraction of the cost up to and including each module, and the number of classes."""
    costs = []
    features = example
    for number, module in enumerate([*modules, head]):
        with restored_state(module), flop_counter() as counter:
            features = module.eval()(features)
        costs.append(counter.get_total_flops())
        name = "head" if module is head else "stem" if number == 0 else f"blocks[{number - 1}]"
        if not isinstance(features, Tensor):
            raise RequestError(
                f"{name} returns a {type(features).__name__}; wrap it in a module that returns one tensor"
            )
        if features.dim() < 2 or len(features) != len(example):
            raise RequestError(
                f"{name} returns shape {tuple(features.shape)}; it must return features with {len(example)} examples "
                "in the first dimension"
            )
    if features.dim() != 2:
        raise RequestError(f"head returns shape {tuple(features.shape)}; it must return logits (B, classes)")
    total = max(sum(costs), 1)
    return [sum(costs[: done + 1]) / total for done in range(len(modules))], features.shape[1]
