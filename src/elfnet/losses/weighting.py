"""Class weights from training counts, deferred re-weighting, and the weighted mean over a batch."""

# Shapes: B batch, C classes

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from elfnet.errors import RequestError
from elfnet.losses.base import check_counts
from elfnet.registry import Registry

Floats = NDArray[np.float64]
WEIGHTINGS: Registry[Callable[[Floats, float], Floats]] = Registry("criterion.reweight")
"""Functions from (training examples per class, beta) to unscaled weights, by name."""


@WEIGHTINGS.register("none")
def _none(counts_C: Floats, _beta: float) -> Floats:
    return np.ones_like(counts_C)


@WEIGHTINGS.register("effective")
def _effective(counts_C: Floats, beta: float) -> Floats:
    """The inverse effective number of examples (Cui et al. 2019): (1 - beta) / (1 - beta^n)."""
    if not 0 <= beta < 1:
        raise RequestError(f"criterion.effective_beta={beta} must be in [0, 1); the usual value is 0.9999")
    # expm1 keeps 1 - beta^n precise for rare classes, where beta^n is close to 1.
    return (1 - beta) / -np.expm1(counts_C * np.log(beta)) if beta > 0 else np.ones_like(counts_C)


@WEIGHTINGS.register("inverse")
def _inverse(counts_C: Floats, _beta: float) -> Floats:
    return 1 / counts_C


@WEIGHTINGS.register("inverse_sqrt")
def _inverse_sqrt(counts_C: Floats, _beta: float) -> Floats:
    return 1 / np.sqrt(counts_C)


def class_weights(
    class_counts: Sequence[int],
    kind: str = "effective",
    *,
    beta: float = 0.9999,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """The weight of each class, shape (C,), scaled so that the weights sum to C.

    Args:
        class_counts: the number of training examples per class.
        kind: the name of the weighting: `none`, `effective`, `inverse` or `inverse_sqrt`.
        beta: the parameter of `effective`.
        dtype: of the result; weights are computed in float64.

    Raises:
        RequestError: the name is unknown, a class has no training example, or beta is out of range.

    Example:
        >>> class_weights([30, 10], "inverse").tolist()
        [0.5, 1.5]
    """
    check_counts(class_counts, "weight")
    raw_C = WEIGHTINGS[kind](np.asarray(class_counts, dtype=np.float64), beta)
    return torch.from_numpy(raw_C * (len(raw_C) / raw_C.sum())).to(dtype)


def weights_in_force(epoch: int, *, reweight: str, start: int) -> str:
    """The name of the weighting that applies in `epoch` (counted from 0): `none` before epoch `start`.

    Example:
        >>> [weights_in_force(e, reweight="effective", start=160) for e in (159, 160)]
        ['none', 'effective']
    """
    return reweight if epoch >= start else "none"


class DeferredReweighting(nn.Module):
    """Deferred re-weighting (DRW): weights of 1 before epoch `start`, the given class weights from then on.

    It is a pure function of the epoch, so there is nothing to save or restore.

    Args:
        weights_C: class weights, such as those of `class_weights`.
        start: the first epoch, counted from 0, in which they apply.
        name: the name of the weights, for logs.

    Example:
        >>> reweighting = DeferredReweighting(class_weights([30, 10], "inverse"), start=160)
        >>> reweighting(159).tolist(), reweighting(160).tolist()
        ([1.0, 1.0], [0.5, 1.5])
    """

    weights_C: Tensor

    def __init__(self, weights_C: Tensor, *, start: int, name: str = "effective") -> None:
        super().__init__()
        self._start, self._name = start, name
        self.register_buffer("weights_C", weights_C, persistent=False)

    def in_force(self, epoch: int) -> str:
        """The name of the weights of an epoch, `none` before `start`."""
        return weights_in_force(epoch, reweight=self._name, start=self._start)

    def forward(self, epoch: int) -> Tensor:
        """The weight of each class in an epoch, shape (C,)."""
        return self.weights_C if epoch >= self._start else torch.ones_like(self.weights_C)


def weighted_batch_mean(loss_B: Tensor, weight_B: Tensor, divisor: Tensor | None = None) -> Tensor:
    """The weighted mean sum_i w_i L_i / sum_i w_i over the whole batch, including examples that stopped early.

    Dividing by the examples that are left would give three hard examples the weight of a full batch.

    Args:
        divisor: the sum of weights of the whole batch, if `loss_B` is only a part of it (several processes, gradient
            accumulation). It depends on labels only, so it is known before the forward pass. None: the sum of
            `weight_B`.
    """
    return (loss_B * weight_B).sum() / (weight_B.sum() if divisor is None else divisor)
