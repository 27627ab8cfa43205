"""Cluster under-sampling: the centres of as many clusters as the smallest class has examples stand for every other."""

from elfnet.data.examples import Ints
from elfnet.methods.refit.resample.imbalanced_learn import run_sampler, sampler_class
from elfnet.methods.refit.resample.resampled import Floats, Resampled


def cluster_under_sample(features_NF: Floats, labels_N: Ints, *, neighbours: int, seed: int) -> Resampled:  # noqa: ARG001
    sampler = sampler_class("under_sampling", "ClusterCentroids")(random_state=seed)
    return Resampled(*run_sampler(sampler, features_NF, labels_N))
