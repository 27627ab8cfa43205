"""Reductions say what they divide by."""

# Shapes: B batch

from torch import Tensor


def weighted_batch_mean(loss_B: Tensor, weight_B: Tensor, divisor: Tensor | None = None) -> Tensor:
    """sum_i w_i L_i / sum_i w_i over the *batch*, those that have left early included.

    Dividing by the examples still there would give three hard examples the pull of a full batch.

    Args:
        divisor: the sum of weights of the whole batch, where this is only a part of it (several processes, gradient
            accumulation). It depends on labels only, so it is known before the forward pass.
    """
    return (loss_B * weight_B).sum() / (weight_B.sum() if divisor is None else divisor)
