"""tau-norm against a loop over examples, classes and features."""

# Shapes: N examples, F features, C classes

import copy
import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from elfnet.evaluate.run import logits_of
from elfnet.methods.refit.classifiers import LabelledFeed, classifier_features, linear_classifiers
from elfnet.methods.refit.post_hoc import normalise_weights
from elfnet.models.staged import StagedNetwork

TAUS = (0.0, 0.5, 1.0, 1.5, 2.0)


def naive_logits(features_NF: Tensor, weight_CF: Tensor, tau: float) -> list[list[float]]:
    rows = []
    for features in features_NF.tolist():
        row = []
        for weight in weight_CF.tolist():
            length = math.sqrt(sum(one * one for one in weight))
            row.append(sum(f * w / length**tau for f, w in zip(features, weight, strict=True)))
        rows.append(row)
    return rows


def naive_balanced_accuracy(logits: Sequence[Sequence[float]], labels: Sequence[int]) -> float:
    recalls = []
    for label in set(labels):
        mine = [row for row, of in zip(logits, labels, strict=True) if of == label]
        recalls.append(sum(max(range(len(row)), key=row.__getitem__) == label for row in mine) / len(mine))
    return sum(recalls) / len(recalls)


def test_scores_choice_and_logits_are_those_of_a_naive_loop(network: StagedNetwork, calibration: LabelledFeed) -> None:
    weights_E = [classifier.weight.detach().clone() for classifier in linear_classifiers(network)]
    features_E, labels_N = classifier_features(network, calibration)
    choice_E = normalise_weights(network, calibration, taus=TAUS)
    assert len({choice.tau for choice in choice_E}) > 1, "exits choose alike here, so that it is not tested"

    logits_NEC = logits_of(network, calibration.batches)
    for k, (features_NF, weight_CF, choice) in enumerate(zip(features_E, weights_E, choice_E, strict=True)):
        expected = {
            tau: naive_balanced_accuracy(naive_logits(features_NF, weight_CF, tau), labels_N.tolist()) for tau in TAUS
        }
        assert dict(choice.scores) == pytest.approx(expected)
        assert choice.tau == min(tau for tau in TAUS if expected[tau] == max(expected.values()))
        naive_NC = torch.tensor(naive_logits(features_NF, weight_CF, choice.tau))
        assert torch.allclose(torch.from_numpy(logits_NEC[:, k]), naive_NC, rtol=1e-4, atol=1e-5)


def test_only_classifiers_change(network: StagedNetwork, calibration: LabelledFeed) -> None:
    before = copy.deepcopy(network.state_dict())
    normalise_weights(network, calibration, taus=[1.5])
    for name, tensor in network.state_dict().items():
        assert torch.equal(tensor, before[name]) is ("classifier" not in name), name


def test_one_candidate_is_chosen_and_the_run_as_it_was_is_scored(
    network: StagedNetwork, calibration: LabelledFeed
) -> None:
    logits_NC = logits_of(network, calibration.batches)[:, -1].tolist()
    before = naive_balanced_accuracy(logits_NC, calibration.labels().tolist())
    choice_E = normalise_weights(network, calibration, taus=[1.0])
    assert [choice.tau for choice in choice_E] == [1.0] * network.exits
    assert choice_E[-1].before == pytest.approx(before)
    for classifier in linear_classifiers(network):
        assert torch.allclose(classifier.weight.norm(dim=1), torch.ones(4), atol=1e-6)
        assert not classifier.bias.any()


def test_weights_of_zero_stay_zero(network: StagedNetwork, calibration: LabelledFeed) -> None:
    with torch.no_grad():
        linear_classifiers(network)[-1].weight[2] = 0
    normalise_weights(network, calibration, taus=[0.7])
    weight_CF = linear_classifiers(network)[-1].weight
    assert weight_CF.isfinite().all()
    assert not weight_CF[2].any()
