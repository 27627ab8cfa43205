"""Multinomial logistic regression by full-batch L-BFGS: no learning rate, no order, no random number."""

# Shapes: M examples, F features, C classes

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

MOST_STEPS = 2_000
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
        max_iter=MOST_STEPS,
        max_eval=2 * MOST_STEPS,
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
