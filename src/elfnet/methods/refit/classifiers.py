"""The classifiers of a network's heads, and the features they read."""

# Shapes: N examples, E exits, F features (of one exit), C classes
# Shapes: M examples, F features, C classes

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from elfnet.data.loading.feed import EvaluationFeed
from elfnet.data.types import Examples, Ints
from elfnet.evaluate.run import logits_of
from elfnet.models.experts import own_logits
from elfnet.models.heads import Head, LinearClassifier
from elfnet.models.layers import evaluation_mode
from elfnet.models.staged import StagedNetwork

_OF_CLASSIFIER = re.compile(r"heads\.\d+\.classifier\.(.+)")


def classifier_tensor(name: str) -> str:
    """What a tensor of the network's state is called within its classifier; empty if it belongs to none."""
    found = _OF_CLASSIFIER.fullmatch(name)
    return found[1] if found else ""


def linear_classifiers(network: StagedNetwork) -> list[LinearClassifier]:
    """Of every exit, the first one first."""
    found = []
    for head in network.heads:
        assert isinstance(head, Head), "networks of recipes have no others, but for BBN, which is refused"
        assert isinstance(head.classifier, LinearClassifier), "the recipe refuses others"
        found.append(head.classifier)
    return found


@dataclass(frozen=True)
class LabelledFeed:
    """A split as evaluation sees it: every example once, without augmentation."""

    batches: EvaluationFeed
    examples: Examples

    def labels(self) -> Ints:
        """Of the examples that the last pass over the batches gave."""
        labels_N: Ints = self.examples.labels_N[self.batches.rows()]
        return labels_N


def logits_and_labels(network: StagedNetwork, feed: LabelledFeed) -> tuple[list[Tensor], Ints]:
    """What the classifier of every exit gives, E tensors of shape (N, C) in float64; and labels (N,)."""
    answers_NEC = torch.from_numpy(logits_of(network, feed.batches)).double()
    logits_ENC = own_logits(answers_NEC.transpose(0, 1), network.experts)
    return list(logits_ENC), feed.labels()


@torch.no_grad()
def classifier_features(network: StagedNetwork, feed: LabelledFeed) -> tuple[list[Tensor], Ints]:
    """What the classifier of every exit reads, E tensors of shape (N, F) in float64 on the CPU; and labels (N,)."""
    parts: list[list[Tensor]] = [[] for _ in range(network.exits)]
    with evaluation_mode(network), _listening(network, parts):
        for images in feed.batches:
            network.forward(images)
    return [torch.cat(part) for part in parts], np.asarray(feed.labels())


@contextmanager
def _listening(network: StagedNetwork, parts: list[list[Tensor]]) -> Iterator[None]:
    """Keep what goes into each classifier while the network runs."""

    def keeping_in(part: list[Tensor]) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        return lambda _, inputs: part.append(inputs[0].double().cpu())

    handles = [
        classifier.register_forward_pre_hook(keeping_in(part))
        for classifier, part in zip(linear_classifiers(network), parts, strict=True)
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


MAX_STEPS = 2_000
SMALL_GRADIENT = 1e-6
"""The largest derivative by any weight at which the fit is done; losses differ in the tenth digit from there on."""


class SoftmaxFit(NamedTuple):
    """Weights (C, F) and bias (C,) in float64, the steps taken, and the largest derivative that is left."""

    weight_CF: Tensor
    bias_C: Tensor
    steps: int
    gradient: float


def fit_softmax_regression(
    features_MF: Tensor, labels_M: Tensor, weight_CF: Tensor, bias_C: Tensor, *, weight_decay: float
) -> SoftmaxFit:
    """Minimise mean cross-entropy + weight_decay / 2 (|W|^2 + |b|^2), which is what SGD with this decay descends.

    With a decay the minimum is unique, so that weight_CF and bias_C, where it begins, do not decide where it ends.
    """
    features_MF = features_MF.double()
    weight_CF = weight_CF.detach().double().cpu().clone().requires_grad_()
    bias_C = bias_C.detach().double().cpu().clone().requires_grad_()
    optimiser = torch.optim.LBFGS(
        [weight_CF, bias_C],
        max_iter=MAX_STEPS,
        max_eval=2 * MAX_STEPS,
        history_size=20,
        tolerance_grad=SMALL_GRADIENT,
        tolerance_change=1e-14,
        line_search_fn="strong_wolfe",
    )

    def objective() -> Tensor:
        optimiser.zero_grad()
        loss = functional.cross_entropy(features_MF @ weight_CF.T + bias_C, labels_M)
        loss = loss + weight_decay / 2 * (weight_CF.square().sum() + bias_C.square().sum())
        torch.autograd.backward(loss)
        return loss

    with torch.enable_grad():
        optimiser.step(objective)  # type: ignore[no-untyped-call]
        objective()
    assert weight_CF.grad is not None
    assert bias_C.grad is not None
    gradient = max(float(weight_CF.grad.abs().max()), float(bias_C.grad.abs().max()))
    steps = int(optimiser.state[weight_CF]["n_iter"])
    return SoftmaxFit(weight_CF.detach(), bias_C.detach(), steps, gradient)
