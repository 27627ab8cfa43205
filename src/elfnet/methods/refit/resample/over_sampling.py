"""Random over-sampling: examples of smaller classes are repeated until all are as many as the largest."""

from elfnet.data.examples import Ints
from elfnet.methods.refit.resample.imbalanced_learn import run_sampler, sampler_class
from elfnet.methods.refit.resample.resampled import Floats, Resampled


def over_sample(features_NF: Floats, labels_N: Ints, *, neighbours: int, seed: int) -> Resampled:  # noqa: ARG001
    sampler = sampler_class("over_sampling", "RandomOverSampler")(random_state=seed)
    return Resampled(*run_sampler(sampler, features_NF, labels_N))
