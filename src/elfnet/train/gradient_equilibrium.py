"""Gradient equilibrium (Li et al. 2019, "Improved Techniques for Training Adaptive Deep Networks").

The loss of a network with K exits is a sum of K losses. Layers near the input get the gradients of all of them, so
their updates grow with the number of exits, and the early exits pull them away from what the last exit needs. Gradient
equilibrium scales the gradients where the network forks: behind stage k of K the gradient from the head is multiplied
by 1 / (K - k + 1), and the gradient from the later stages by (K - k) / (K - k + 1). All exits behind a stage then weigh
the same in it, and their weights add up to 1. Heads get their full gradient.

Experts fork once: n of them read the features of the last shared stage side by side. Behind it, its head and every
expert get the same factor, 1 / (n + 1), and the experts themselves get their full gradient.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


class _ScaleGradient(torch.autograd.Function):
    """The identity, whose gradient is multiplied by a factor."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return features.view_as(features)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0] * ctx.factor, None


def scale_gradient(features: Any, factor: float) -> Any:
    """Return the features (a tensor or a tuple of tensors) unchanged, and multiply their gradient by `factor`."""
    if factor == 1.0:
        return features
    if isinstance(features, tuple):
        return tuple(scale_gradient(tensor, factor) for tensor in features)
    return _ScaleGradient.apply(features, factor)  # type: ignore[no-untyped-call]


class GradientEquilibrium:
    """Scales gradients behind every stage; the forward pass is unchanged.

    Args:
        exits: number of exits of the network.
        experts: how many of them are experts.

    Example:
        >>> GradientEquilibrium(3).factors
        ((0.3333333333333333, 0.6666666666666666), (0.5, 0.5), (1.0, 1.0))
    """

    def __init__(self, exits: int, experts: int = 1) -> None:
        self.factors: Sequence[tuple[float, float]] = tuple(_factors(exits - k, experts=experts) for k in range(exits))

    def __call__(self, k: int, features: Any) -> tuple[Any, Any]:
        """Features of stage k (from 0) as its head reads them, and as the next stage reads them."""
        of_head, of_rest = self.factors[k]
        return scale_gradient(features, of_head), scale_gradient(features, of_rest)


def _factors(remaining: int, *, experts: int) -> tuple[float, float]:
    """Gradient factors of the head and of the later stages, for a stage with `remaining` exits, its own included."""
    if remaining <= experts:
        return 1.0, 1.0
    follows = remaining - 1
    # The gradient from behind the last shared stage is the sum over experts, each of which is one exit.
    return 1 / remaining, (1 if follows == experts else follows) / remaining
