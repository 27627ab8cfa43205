"""Losses: base losses per example, class weights, deferred re-weighting, and the ELF loss over all exits.

A base loss returns one value per example and exit. Class weights are applied by the reduction.
"""

from typing import TYPE_CHECKING

from elfnet.lazy import lazy_names

if TYPE_CHECKING:
    from elfnet.losses.base import BaseLoss, Labels, build_loss
    from elfnet.losses.cross_entropy import CrossEntropy, Focal
    from elfnet.losses.elf import Distillation, ELFLoss, elf_per_sample
    from elfnet.losses.ldam import LDAM, ldam_margins
    from elfnet.losses.logit_adjusted import LogitAdjusted, log_prior
    from elfnet.losses.weighting import class_weights, weighted_batch_mean, weights_in_force

_MODULES = {
    "BaseLoss": "elfnet.losses.base",
    "CrossEntropy": "elfnet.losses.cross_entropy",
    "Distillation": "elfnet.losses.elf",
    "ELFLoss": "elfnet.losses.elf",
    "Focal": "elfnet.losses.cross_entropy",
    "LDAM": "elfnet.losses.ldam",
    "Labels": "elfnet.losses.base",
    "LogitAdjusted": "elfnet.losses.logit_adjusted",
    "build_loss": "elfnet.losses.base",
    "class_weights": "elfnet.losses.weighting",
    "elf_per_sample": "elfnet.losses.elf",
    "ldam_margins": "elfnet.losses.ldam",
    "log_prior": "elfnet.losses.logit_adjusted",
    "weighted_batch_mean": "elfnet.losses.weighting",
    "weights_in_force": "elfnet.losses.weighting",
}

__all__ = [
    "LDAM",
    "BaseLoss",
    "CrossEntropy",
    "Distillation",
    "ELFLoss",
    "Focal",
    "Labels",
    "LogitAdjusted",
    "build_loss",
    "class_weights",
    "elf_per_sample",
    "ldam_margins",
    "log_prior",
    "weighted_batch_mean",
    "weights_in_force",
]

__getattr__ = lazy_names(__name__, _MODULES)


def __dir__() -> list[str]:
    return __all__
