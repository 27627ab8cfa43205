"""SMOTE (Chawla et al. 2002): new examples at random places between an example and a neighbour of its class."""

from typing import Any

from elfnet.data.examples import Ints
from elfnet.methods.refit.resample.imbalanced_learn import sampler_class
from elfnet.methods.refit.resample.resampled import Floats, Resampled
from elfnet.methods.refit.resample.synthetic import grow_every_class


def smote(features_NF: Floats, labels_N: Ints, *, neighbours: int, seed: int) -> Resampled:
    kind = sampler_class("over_sampling", "SMOTE")

    def make(sizes: dict[int, int], near: int, seed: int) -> Any:
        return kind(sampling_strategy=sizes, k_neighbors=near, random_state=seed)

    return grow_every_class(features_NF, labels_N, neighbours=neighbours, seed=seed, make=make)
