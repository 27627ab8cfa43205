"""Class weights from training counts, deferred re-weighting, and the weighted mean over a batch."""

# Shapes: B batch, C classes

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from elfnet.errors import RequestError
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


def class_weights(kind: str, class_counts: Sequence[int], *, beta: float = 0.9999) -> Floats:
    """The weight of each class, shape (C,), scaled so that the weights sum to C.

    Args:
        kind: the name of the weighting: `none`, `effective`, `inverse` or `inverse_sqrt`.
        class_counts: the number of training examples per class.
        beta: the parameter of `effective`.

    Raises:
        RequestError: the name is unknown, a class has no training example, or beta is out of range.

    Example:
        >>> class_weights("inverse", [30, 10]).tolist()
        [0.5, 1.5]
    """
    counts_C = np.asarray(class_counts, dtype=np.float64)
    if (counts_C <= 0).any():
        empty = int(np.flatnonzero(counts_C <= 0)[0])
        raise RequestError(
            f"class {empty} has no training example, so its weight is undefined; drop it or add examples"
        )
    raw_C = WEIGHTINGS[kind](counts_C, beta)
    scaled_C: Floats = raw_C * (len(raw_C) / raw_C.sum())
    return scaled_C


def weights_in_force(epoch: int, *, reweight: str, start: int) -> str:
    """The name of the weighting that applies in `epoch` (counted from 0): `none` before epoch `start`.

    Example:
        >>> [weights_in_force(e, reweight="effective", start=160) for e in (159, 160)]
        ['none', 'effective']
    """
    return reweight if epoch >= start else "none"


def weighted_batch_mean(loss_B: Tensor, weight_B: Tensor, divisor: Tensor | None = None) -> Tensor:
    """The weighted mean sum_i w_i L_i / sum_i w_i over the whole batch, including examples that stopped early.

    Dividing by the examples that are left would give three hard examples the weight of a full batch.

    Args:
        divisor: the sum of weights of the whole batch, if `loss_B` is only a part of it (several processes, gradient
            accumulation). It depends on labels only, so it is known before the forward pass. None: the sum of
            `weight_B`.
    """
    return (loss_B * weight_B).sum() / (weight_B.sum() if divisor is None else divisor)
