"""Edited nearest neighbours (Wilson 1972): an example goes if most of its nearest neighbours are of another class.

The smallest class is left alone. So is a class of which nothing would remain: it could not be learnt at all.
"""

import numpy as np

from elfnet.data.examples import Ints
from elfnet.methods.refit.resample.imbalanced_learn import run_sampler, sampler_class
from elfnet.methods.refit.resample.resampled import Floats, Resampled


def edit_nearest_neighbours(features_NF: Floats, labels_N: Ints, *, neighbours: int, seed: int) -> Resampled:  # noqa: ARG001
    near = min(neighbours, len(labels_N) - 1)
    sampler = sampler_class("under_sampling", "EditedNearestNeighbours")(n_neighbors=near, kind_sel="mode")
    run_sampler(sampler, features_NF, labels_N)
    kept_N = np.zeros(len(labels_N), dtype=bool)
    kept_N[sampler.sample_indices_] = True
    emptied = np.setdiff1d(labels_N, labels_N[kept_N])
    kept_N |= np.isin(labels_N, emptied)
    return Resampled(features_NF[kept_N], labels_N[kept_N], as_they_were=tuple(emptied.tolist()))
