"""Losses: base losses per example, class weights, deferred re-weighting, and the ELF loss over all exits.

A base loss returns one value per example and exit. Class weights are applied by the reduction.

Example:
    A step of a training loop, with the logits of all exits in `logits_EBC`:

    >>> import torch
    >>> from elfnet.losses import DeferredReweighting, ELFLoss, LDAMLoss, class_weights
    >>> counts = [5000, 500, 50]
    >>> elf = ELFLoss(LDAMLoss(counts), threshold="2/C")
    >>> reweighting = DeferredReweighting(class_weights(counts, "effective"), start=160)
    >>> logits_EBC, labels_B = torch.zeros(4, 8, 3), torch.zeros(8, dtype=torch.long)
    >>> loss, exit_B = elf(logits_EBC, labels_B, weights_C=reweighting(0))
    >>> exit_B.tolist()
    [3, 3, 3, 3, 3, 3, 3, 3]
"""

from typing import TYPE_CHECKING

from elfnet.lazy import lazy_names

if TYPE_CHECKING:
    from elfnet.losses.base import BaseLoss, Labels, build_loss
    from elfnet.losses.cross_entropy import CrossEntropyLoss, FocalLoss, ReferenceFocalLoss
    from elfnet.losses.elf import Distillation, ELFLoss
    from elfnet.losses.ldam import LDAMLoss, ldam_margins
    from elfnet.losses.logit_adjusted import BalancedSoftmaxLoss, LogitAdjustedLoss, log_prior
    from elfnet.losses.weighting import DeferredReweighting, class_weights, weighted_batch_mean, weights_in_force

_MODULES = {
    "BalancedSoftmaxLoss": "elfnet.losses.logit_adjusted",
    "BaseLoss": "elfnet.losses.base",
    "CrossEntropyLoss": "elfnet.losses.cross_entropy",
    "DeferredReweighting": "elfnet.losses.weighting",
    "Distillation": "elfnet.losses.elf",
    "ELFLoss": "elfnet.losses.elf",
    "FocalLoss": "elfnet.losses.cross_entropy",
    "LDAMLoss": "elfnet.losses.ldam",
    "Labels": "elfnet.losses.base",
    "LogitAdjustedLoss": "elfnet.losses.logit_adjusted",
    "ReferenceFocalLoss": "elfnet.losses.cross_entropy",
    "build_loss": "elfnet.losses.base",
    "class_weights": "elfnet.losses.weighting",
    "ldam_margins": "elfnet.losses.ldam",
    "log_prior": "elfnet.losses.logit_adjusted",
    "weighted_batch_mean": "elfnet.losses.weighting",
    "weights_in_force": "elfnet.losses.weighting",
}

__all__ = [
    "BalancedSoftmaxLoss",
    "BaseLoss",
    "CrossEntropyLoss",
    "DeferredReweighting",
    "Distillation",
    "ELFLoss",
    "FocalLoss",
    "LDAMLoss",
    "Labels",
    "LogitAdjustedLoss",
    "ReferenceFocalLoss",
    "build_loss",
    "class_weights",
    "ldam_margins",
    "log_prior",
    "weighted_batch_mean",
    "weights_in_force",
]

__getattr__ = lazy_names(__name__, _MODULES)


def __dir__() -> list[str]:
    return __all__
