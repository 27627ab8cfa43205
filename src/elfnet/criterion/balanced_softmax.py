"""Balanced softmax (Ren et al. 2020): each class enters the softmax with as many copies as it has examples."""

from collections.abc import Sequence
from typing import Any

from elfnet.criterion.base_loss import LOSSES, BaseLoss
from elfnet.criterion.logit_adjusted import LogitAdjusted, log_prior


@LOSSES.register("balanced-softmax")
def build(class_counts: Sequence[int], *, scale: float = 1.0, **_: Any) -> BaseLoss:
    """-log(n[y] exp z[y] / sum_c n[c] exp z[c]), which is the logit-adjusted loss at tau = 1."""
    return LogitAdjusted(log_prior(class_counts), tau=1.0, scale=scale)
