"""Classifiers fitted on re-sampled features: all exits are fitted, nothing else changes, small classes are reported."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from elfnet.data.types import Ints
from elfnet.methods.refit.classifiers import (
    LabelledFeed,
    classifier_features,
    fit_softmax_regression,
    linear_classifiers,
)
from elfnet.methods.refit.resample import RESAMPLERS, Floats, Resampled
from elfnet.methods.refit.resampled_fit import refit_on_resampled
from elfnet.models.staged import StagedNetwork
from elfnet.run.info import ResampledInfo

NAMES = ("ant", "bee", "cat", "dog")


@pytest.fixture
def train(feed_of: Callable[[Ints], LabelledFeed]) -> LabelledFeed:
    return feed_of(np.repeat(np.arange(4), [20, 10, 4, 2]))


def test_every_exit_gets_the_fit_of_its_own_features(network: StagedNetwork, train: LabelledFeed) -> None:
    """With a re-sampling that keeps the first of each class, so that the expectation needs no random number."""

    def first_two(features_NF: Floats, labels_N: Ints, *, neighbours: int, seed: int) -> Resampled:
        assert (neighbours, seed) == (3, 7)
        keep = np.concatenate([np.flatnonzero(labels_N == c)[:2] for c in range(4)])
        return Resampled(features_NF[keep], labels_N[keep])

    features_E, labels_N = classifier_features(network, train)
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    record, remarks = refit_on_resampled(
        network, train, resample=first_two, neighbours=3, seed=7, weight_decay=0.01, class_names=NAMES
    )
    assert remarks == []
    assert [one.examples for one in record.exits if isinstance(one, ResampledInfo)] == [8] * network.exits
    keep = np.concatenate([np.flatnonzero(labels_N == c)[:2] for c in range(4)])
    for features_NF, classifier in zip(features_E, linear_classifiers(network), strict=True):
        expected = fit_softmax_regression(
            features_NF[keep],
            torch.from_numpy(labels_N[keep]),
            torch.zeros_like(classifier.weight),
            torch.zeros_like(classifier.bias),
            weight_decay=0.01,
        )
        assert torch.allclose(classifier.weight, expected.weight_CF.float(), atol=1e-3)
    for name, tensor in network.state_dict().items():
        assert torch.equal(tensor, before[name]) is ("classifier" not in name), name


def test_smote_with_a_class_of_two_says_so_once(network: StagedNetwork, train: LabelledFeed) -> None:
    record, remarks = refit_on_resampled(
        network, train, resample=RESAMPLERS["smote"], neighbours=5, seed=0, weight_decay=2e-4, class_names=NAMES
    )
    assert record.smaller_neighbourhoods == {"cat": 3, "dog": 1}
    assert remarks[0] == "smaller neighbourhoods than 5 in 2 small classes (cat 3, dog 1)"
    assert [one.examples for one in record.exits if isinstance(one, ResampledInfo)] == [80] * network.exits
    assert all(classifier.weight.isfinite().all() for classifier in linear_classifiers(network))
