"""Class weights from training counts, scaled to sum to the number of classes."""

# Shapes: C classes
# Shapes: B batch

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from elfnet.errors import RequestError
from elfnet.registry import Registry

Counts = NDArray[np.float64]
WEIGHTINGS: Registry[Callable[[Counts, float], Counts]] = Registry("criterion.reweight")


@WEIGHTINGS.register("none")
def _none(counts_C: Counts, _beta: float) -> Counts:
    return np.ones_like(counts_C)


@WEIGHTINGS.register("effective")
def _effective(counts_C: Counts, beta: float) -> Counts:
    """Effective number (Cui et al. 2019): (1 - b) / (1 - b^n)."""
    if not 0 <= beta < 1:
        raise RequestError(f"criterion.effective_beta={beta} must lie in [0, 1); the usual value is 0.9999")
    # expm1 keeps 1 - b^n precise for rare classes, where b^n is nearly 1.
    return (1 - beta) / -np.expm1(counts_C * np.log(beta)) if beta > 0 else np.ones_like(counts_C)


@WEIGHTINGS.register("inverse")
def _inverse(counts_C: Counts, _beta: float) -> Counts:
    return 1 / counts_C


@WEIGHTINGS.register("inverse_sqrt")
def _inverse_sqrt(counts_C: Counts, _beta: float) -> Counts:
    return 1 / np.sqrt(counts_C)


def class_weights(kind: str, class_counts: Sequence[int], *, beta: float = 0.9999) -> Counts:
    """Weight of each class, shape (C,), summing to C.

    Example:
        >>> class_weights("inverse", [30, 10]).tolist()
        [0.5, 1.5]
    """
    counts_C = np.asarray(class_counts, dtype=np.float64)
    if (counts_C <= 0).any():
        empty = int(np.flatnonzero(counts_C <= 0)[0])
        raise RequestError(f"class {empty} has no training example, so it has no weight; drop it or add examples")
    raw_C = WEIGHTINGS[kind](counts_C, beta)
    scaled: Counts = raw_C * (len(raw_C) / raw_C.sum())
    return scaled


def weights_in_force(epoch: int, *, reweight: str, start: int) -> str:
    """The name of the weighting that applies in a 0-based `epoch`. A pure function: nothing to restore on resume.

    Example:
        >>> [weights_in_force(e, reweight="effective", start=160) for e in (159, 160)]
        ['none', 'effective']
    """
    return reweight if epoch >= start else "none"


def weighted_batch_mean(loss_B: Tensor, weight_B: Tensor, divisor: Tensor | None = None) -> Tensor:
    """sum_i w_i L_i / sum_i w_i over the *batch*, those that have left early included.

    Dividing by the examples still there would give three hard examples the pull of a full batch.

    Args:
        divisor: the sum of weights of the whole batch, where this is only a part of it (several processes, gradient
            accumulation). It depends on labels only, so it is known before the forward pass.
    """
    return (loss_B * weight_B).sum() / (weight_B.sum() if divisor is None else divisor)
