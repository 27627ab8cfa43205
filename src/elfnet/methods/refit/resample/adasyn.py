"""ADASYN (He et al. 2008): as SMOTE, with more new examples where more neighbours are of other classes.

A class none of whose examples has such a neighbour needs no new ones by this rule, and is left as it is.
"""

from typing import Any

from elfnet.data.examples import Ints
from elfnet.methods.refit.resample.imbalanced_learn import sampler_class
from elfnet.methods.refit.resample.resampled import Floats, Resampled
from elfnet.methods.refit.resample.synthetic import grow_every_class

# What imbalanced-learn says where no example has a neighbour of another class, or all shares round to zero.
NO_PLACE = ("ADASYN is not suited", "No samples will be generated")


def adasyn(features_NF: Floats, labels_N: Ints, *, neighbours: int, seed: int) -> Resampled:
    kind = sampler_class("over_sampling", "ADASYN")

    def make(sizes: dict[int, int], near: int, seed: int) -> Any:
        return kind(sampling_strategy=sizes, n_neighbors=near, random_state=seed)

    def no_place(error: Exception) -> bool:
        return any(text in str(error) for text in NO_PLACE)

    return grow_every_class(features_NF, labels_N, neighbours=neighbours, seed=seed, make=make, nothing_to_do=no_place)
