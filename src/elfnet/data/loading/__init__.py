"""Batches: feeds over examples in memory and in files, samplers, worker processes and the packed cache."""

from typing import TYPE_CHECKING

from elfnet.lazy import lazy_names

if TYPE_CHECKING:
    from elfnet.data.loading.build import evaluation_batches, normalisation_of, training_batches
    from elfnet.data.loading.feed import EvaluationFeed, SampledFeed, TrainingBatch

_MODULES = {
    "EvaluationFeed": "elfnet.data.loading.feed",
    "SampledFeed": "elfnet.data.loading.feed",
    "TrainingBatch": "elfnet.data.loading.feed",
    "evaluation_batches": "elfnet.data.loading.build",
    "normalisation_of": "elfnet.data.loading.build",
    "training_batches": "elfnet.data.loading.build",
}

__all__ = [
    "EvaluationFeed",
    "SampledFeed",
    "TrainingBatch",
    "evaluation_batches",
    "normalisation_of",
    "training_batches",
]

__getattr__ = lazy_names(__name__, _MODULES)


def __dir__() -> list[str]:
    return __all__
