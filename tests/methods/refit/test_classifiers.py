"""Features are what the classifiers really read."""

import warnings

import numpy as np
import pytest
import torch
from torch import Tensor

from elfnet.evaluate.run import logits_of
from elfnet.methods.refit.classifiers import (
    SMALL_GRADIENT,
    LabelledFeed,
    classifier_features,
    classifier_tensor,
    fit_softmax_regression,
    linear_classifiers,
)
from elfnet.models.staged import StagedNetwork


def test_classifiers_of_features_are_the_logits(network: StagedNetwork, calibration: LabelledFeed) -> None:
    network.train()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    features_E, labels_N = classifier_features(network, calibration)
    assert network.training, "the mode is left as it was"
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())
    logits_NEC = torch.from_numpy(logits_of(network, calibration.batches))
    assert labels_N.tolist() == calibration.labels().tolist()
    for k, (features_NF, classifier) in enumerate(zip(features_E, linear_classifiers(network), strict=True)):
        found = classifier(features_NF.float()).detach()
        assert torch.allclose(found, logits_NEC[:, k], rtol=1e-4, atol=1e-5)
    # The hooks have been removed.
    assert not any(classifier._forward_pre_hooks for classifier in linear_classifiers(network))


def test_names() -> None:
    assert classifier_tensor("heads.12.classifier.weight") == "weight"
    assert classifier_tensor("heads.0.classifier.scale") == "scale"
    for other in ("heads.0.trunk.0.weight", "stages.3.classifier.0.weight", "heads.0.trunk.frequent.classifier.bias"):
        assert classifier_tensor(other) == ""


DECAY = 0.01


@pytest.fixture
def examples() -> tuple[Tensor, Tensor]:
    random = np.random.default_rng(0)
    labels_M = np.repeat(np.arange(3), [30, 20, 10])
    features_MF = random.normal(size=(60, 5)) + 0.8 * random.normal(size=(3, 5))[labels_M]
    return torch.from_numpy(features_MF), torch.from_numpy(labels_M)


def test_agrees_with_scikit_learn(examples: tuple[Tensor, Tensor]) -> None:
    from sklearn.linear_model import LogisticRegression

    features_MF, labels_M = examples
    fit = fit_softmax_regression(features_MF, labels_M, torch.zeros(3, 5), torch.zeros(3), weight_decay=DECAY)
    # There the bias has no penalty, so it is the weight of a feature that is always 1.
    with_one = np.column_stack([features_MF.numpy(), np.ones(60)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        oracle = LogisticRegression(C=1 / (DECAY * 60), fit_intercept=False, tol=1e-10, max_iter=5000)
        oracle.fit(with_one, labels_M.numpy())
    found = torch.cat([fit.weight_CF, fit.bias_C.unsqueeze(1)], dim=1)
    assert torch.allclose(found, torch.from_numpy(oracle.coef_), atol=1e-4)


def test_where_it_begins_does_not_matter(examples: tuple[Tensor, Tensor]) -> None:
    torch.manual_seed(0)
    starts = [(torch.zeros(3, 5), torch.zeros(3)), (torch.randn(3, 5), torch.randn(3))]
    first, second = (fit_softmax_regression(*examples, *start, weight_decay=DECAY) for start in starts)
    assert max(first.gradient, second.gradient) <= SMALL_GRADIENT
    assert torch.allclose(first.weight_CF, second.weight_CF, atol=1e-3)
    assert not starts[1][0].requires_grad, "what it begins with is not touched"


def test_the_same_twice_bit_for_bit(examples: tuple[Tensor, Tensor]) -> None:
    fits = [fit_softmax_regression(*examples, torch.zeros(3, 5), torch.zeros(3), weight_decay=DECAY) for _ in range(2)]
    assert torch.equal(fits[0].weight_CF, fits[1].weight_CF)


def test_more_decay_gives_shorter_weights(examples: tuple[Tensor, Tensor]) -> None:
    lengths = [
        float(fit_softmax_regression(*examples, torch.zeros(3, 5), torch.zeros(3), weight_decay=d).weight_CF.norm())
        for d in (0.001, 0.1, 10.0)
    ]
    assert lengths == sorted(lengths, reverse=True)
