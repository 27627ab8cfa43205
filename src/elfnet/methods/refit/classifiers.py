"""Linear classifiers of a trained network: finding them, computing their inputs and outputs, and fitting them.

A fit is a softmax regression with weight decay, solved by L-BFGS.
"""

# Shapes: N examples of a split, M examples of a fit, E exits, F features (of one exit), C classes

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
from elfnet.models.staged import StagedNetwork, evaluation_mode

_CLASSIFIER_TENSOR = re.compile(r"heads\.\d+\.classifier\.(.+)")
MAX_STEPS = 2_000
SMALL_GRADIENT = 1e-6
"""A fit has converged if no derivative is larger than this. Further steps change the loss in the tenth digit."""


def classifier_tensor(name: str) -> str:
    """The name of a tensor of the state dict within its classifier; empty if it belongs to no classifier."""
    match = _CLASSIFIER_TENSOR.fullmatch(name)
    return match[1] if match else ""


def linear_classifiers(network: StagedNetwork) -> list[LinearClassifier]:
    """The classifier of every exit, in the order of the exits."""
    classifiers = []
    for head in network.heads:
        assert isinstance(head, Head), "the recipe refuses other heads"
        assert isinstance(head.classifier, LinearClassifier), "the recipe refuses other classifiers"
        classifiers.append(head.classifier)
    return classifiers


@dataclass(frozen=True)
class LabelledFeed:
    """A split for evaluation, with labels: every example once, without augmentation."""

    batches: EvaluationFeed
    examples: Examples

    def labels(self) -> Ints:
        """The labels of the examples that the last pass over `batches` returned, in their order."""
        labels_N: Ints = self.examples.labels_N[self.batches.rows()]
        return labels_N


def logits_and_labels(network: StagedNetwork, feed: LabelledFeed) -> tuple[list[Tensor], Ints]:
    """The output of the classifier of every exit, E tensors of shape (N, C) in float64, and the labels (N,)."""
    if not len(feed.examples):
        return [torch.zeros(0, network.classes, dtype=torch.float64)] * network.exits, feed.examples.labels_N
    outputs_NEC = torch.from_numpy(logits_of(network, feed.batches)).double()
    logits_ENC = own_logits(outputs_NEC.transpose(0, 1), network.experts)
    return list(logits_ENC), feed.labels()


@torch.no_grad()
def classifier_features(network: StagedNetwork, feed: LabelledFeed) -> tuple[list[Tensor], Ints]:
    """The input of the classifier of every exit, E tensors (N, F) in float64 on the CPU, and the labels (N,)."""
    batches_E: list[list[Tensor]] = [[] for _ in range(network.exits)]
    with evaluation_mode(network), _record_inputs(network, batches_E):
        for images in feed.batches:
            network.forward(images)
    return [torch.cat(batches) for batches in batches_E], np.asarray(feed.labels())


@contextmanager
def _record_inputs(network: StagedNetwork, batches_E: list[list[Tensor]]) -> Iterator[None]:
    """Append the input of each classifier to its list while the network runs."""

    def append_to(batches: list[Tensor]) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        return lambda _, inputs: batches.append(inputs[0].double().cpu())

    handles = [
        classifier.register_forward_pre_hook(append_to(batches))
        for classifier, batches in zip(linear_classifiers(network), batches_E, strict=True)
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


class SoftmaxFit(NamedTuple):
    """The result of a fit.

    Attributes:
        weight_CF: weights in float64.
        bias_C: biases in float64.
        steps: the number of L-BFGS iterations.
        gradient: the largest absolute derivative at the end.
    """

    weight_CF: Tensor
    bias_C: Tensor
    steps: int
    gradient: float


def fit_softmax_regression(
    features_MF: Tensor, labels_M: Tensor, weight_CF: Tensor, bias_C: Tensor, *, weight_decay: float
) -> SoftmaxFit:
    """Minimise mean cross-entropy + weight_decay / 2 (|W|^2 + |b|^2), the objective of SGD with this weight decay.

    Args:
        weight_CF: the initial weights. With weight decay the minimum is unique and does not depend on them.
        bias_C: the initial biases.
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
