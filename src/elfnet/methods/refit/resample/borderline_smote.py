"""Borderline-SMOTE (Han et al. 2005): as SMOTE, but only from examples at the border of their class.

At the border are those of whose nearest neighbours in the whole split at least half, but not all, are of other classes.
A class without any is left as it is.
"""

from typing import Any

from elfnet.data.examples import Ints
from elfnet.methods.refit.resample.imbalanced_learn import sampler_class
from elfnet.methods.refit.resample.resampled import Floats, Resampled
from elfnet.methods.refit.resample.synthetic import grow_every_class

NEIGHBOURS_OF_ANY_CLASS = 10


def borderline_smote(features_NF: Floats, labels_N: Ints, *, neighbours: int, seed: int) -> Resampled:
    kind = sampler_class("over_sampling", "BorderlineSMOTE")
    around = min(NEIGHBOURS_OF_ANY_CLASS, len(labels_N) - 1)

    def make(sizes: dict[int, int], near: int, seed: int) -> Any:
        return kind(sampling_strategy=sizes, k_neighbors=near, m_neighbors=around, random_state=seed)

    return grow_every_class(features_NF, labels_N, neighbours=neighbours, seed=seed, make=make)
