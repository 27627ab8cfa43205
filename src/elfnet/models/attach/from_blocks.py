"""`from_blocks`: a staged network from modules given by hand, for models that `attach_exits` cannot take apart."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

from elfnet.errors import RequestError
from elfnet.models.attach.attach_exits import DEFAULT_EXITS, prove_equal
from elfnet.models.attach.cuts import Cut, even_cuts
from elfnet.models.attach.heads import ChannelPlace, HeadBuilder, OriginalHead, early_heads, refuse_mixed_classifiers
from elfnet.models.attach.recorder import restored_state
from elfnet.models.flops import flop_counter
from elfnet.models.staged import StagedNetwork


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
