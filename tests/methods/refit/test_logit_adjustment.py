"""Logit adjustment against a loop over examples and classes."""

# Shapes: N examples, E exits, C classes

import math

import pytest
import torch

from elfnet.evaluate.run import logits_of
from elfnet.methods.refit.classifiers import LabelledFeed
from elfnet.methods.refit.post_hoc import adjust_biases
from elfnet.models.staged import StagedNetwork

COUNTS = (100, 40, 15, 5)
TAUS = (0.0, 0.4, 0.8, 1.2, 1.6)


def naive_adjusted(row: list[float], tau: float) -> list[float]:
    return [logit - tau * math.log(count / sum(COUNTS)) for logit, count in zip(row, COUNTS, strict=True)]


def naive_score(rows: list[list[float]], labels: list[int]) -> float:
    right: dict[int, list[bool]] = {}
    for row, label in zip(rows, labels, strict=True):
        right.setdefault(label, []).append(max(range(len(row)), key=row.__getitem__) == label)
    return sum(sum(found) / len(found) for found in right.values()) / len(right)


def test_scores_choice_and_logits_are_those_of_a_naive_loop(network: StagedNetwork, calibration: LabelledFeed) -> None:
    before_NEC = logits_of(network, calibration.batches)
    labels = calibration.labels().tolist()
    choice_E = adjust_biases(network, calibration, taus=TAUS, class_counts=COUNTS)
    assert len({choice.tau for choice in choice_E}) > 1, "exits choose alike here, so that it is not tested"

    after_NEC = logits_of(network, calibration.batches)
    for k, choice in enumerate(choice_E):
        before = before_NEC[:, k].tolist()
        expected = {tau: naive_score([naive_adjusted(row, tau) for row in before], labels) for tau in (*TAUS, 1.0)}
        assert dict(choice.scores) == pytest.approx(expected)
        assert choice.tau == min(tau for tau in TAUS if expected[tau] == max(expected[one] for one in TAUS))
        assert choice.before == pytest.approx(naive_score(before, labels))
        naive_NC = torch.tensor([naive_adjusted(row, choice.tau) for row in before])
        assert torch.allclose(torch.from_numpy(after_NEC[:, k]), naive_NC, rtol=1e-5, atol=1e-5)


def test_the_theory_is_reported_but_not_chosen_unless_it_is_a_candidate(
    network: StagedNetwork, calibration: LabelledFeed
) -> None:
    for choice in adjust_biases(network, calibration, taus=[0.3], class_counts=COUNTS):
        assert choice.tau == 0.3
        assert [tau for tau, _ in choice.scores] == [0.3, 1.0]


def test_equal_classes_change_no_answer(network: StagedNetwork, calibration: LabelledFeed) -> None:
    before_NE = logits_of(network, calibration.batches).argmax(axis=2)
    adjust_biases(network, calibration, taus=[2.0], class_counts=[7, 7, 7, 7])
    assert (logits_of(network, calibration.batches).argmax(axis=2) == before_NE).all()
