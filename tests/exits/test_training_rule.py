"""Eq. 1 against a naive loop."""

import math

import pytest
import torch
from torch import Tensor

from elfnet.exits.training_rule import TrainingRule, exit_taken


def _example(exits: int = 4, batch: int = 60, classes: int = 3) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    target_B = torch.randint(classes, (batch,), generator=generator)
    logits_EBC = torch.randn(exits, batch, classes, generator=generator)
    logits_EBC[:, torch.arange(batch), target_B] += 1
    return logits_EBC, target_B


def _naive_exit(logits_EC: list[list[float]], y: int, threshold: float, scale: float) -> int:
    for k, logits in enumerate(logits_EC):
        exponentials = [math.exp(scale * one) for one in logits]
        z = [one / sum(exponentials) for one in exponentials]
        if z.index(max(z)) == y and z[y] > threshold:
            return k
    return len(logits_EC) - 1


@pytest.mark.parametrize(("threshold", "scale"), [(0.0, 1.0), (0.5, 1.0), (0.8, 1.0), (0.8, 3.0), (0.99, 0.5)])
def test_equals_a_naive_loop(threshold: float, scale: float) -> None:
    logits_EBC, target_B = _example()
    rule = TrainingRule(threshold=threshold, confidence_scale=scale)
    visited_EB = rule.visited(logits_EBC, target_B)
    expected = [
        _naive_exit(logits_EBC[:, b].tolist(), int(target_B[b]), threshold, scale) for b in range(len(target_B))
    ]
    assert exit_taken(visited_EB).tolist() == expected
    assert visited_EB.T.tolist() == [[k <= exit for k in range(4)] for exit in expected]
    if threshold < 0.99:
        assert set(expected) == {0, 1, 2, 3}, "the example should exercise every exit"


def test_leaves_takes_logits_of_one_exit_or_of_all() -> None:
    logits_EBC, target_B = _example()
    rule = TrainingRule(threshold=0.5)
    each_EB = torch.stack([rule.leaves(logits_BC, target_B) for logits_BC in logits_EBC])
    assert torch.equal(rule.leaves(logits_EBC, target_B), each_EB)


def test_a_confident_mistake_stays() -> None:
    logits_BC = torch.tensor([[10.0, 0.0], [10.0, 0.0]])
    assert TrainingRule(threshold=0.9).leaves(logits_BC, torch.tensor([0, 1])).tolist() == [True, False]


def test_confidence_must_exceed_the_threshold() -> None:
    """Two equal logits have a confidence of exactly one half."""
    logits_BC, target_B = torch.tensor([[0.0, 0.0]]), torch.tensor([0])
    assert not TrainingRule(threshold=0.5).leaves(logits_BC, target_B)
    assert TrainingRule(threshold=0.4999).leaves(logits_BC, target_B)


def test_no_example_stops_early_at_threshold_one() -> None:
    logits_EBC = torch.tensor([[[1e4, 0.0]], [[1e4, 0.0]], [[0.0, 1.0]]])
    assert TrainingRule(threshold=1.0).visited(logits_EBC, torch.tensor([0])).all()


def test_the_papers_ldam_threshold_means_a_cosine() -> None:
    """With the other cosines at 0, p > 2/C means a cosine above 0.81 for 10 classes, 0.70 for 100."""
    for classes, cosine in ((10, 0.81), (100, 0.70)):
        rule = TrainingRule(threshold=2 / classes)
        logits_BC = torch.zeros(2, classes)
        logits_BC[0, 0], logits_BC[1, 0] = cosine - 0.01, cosine + 0.01
        assert rule.leaves(logits_BC, torch.tensor([0, 0])).tolist() == [False, True]


def test_bfloat16_logits_are_judged_in_float32() -> None:
    """In bfloat16 0.9975 rounds to 1, so with a threshold between the two no example would stop."""
    logits_BC = torch.tensor([[6.0, 0.0]], dtype=torch.bfloat16)
    assert TrainingRule(threshold=0.9970).leaves(logits_BC, torch.tensor([0]))
    assert not TrainingRule(threshold=0.9980).leaves(logits_BC, torch.tensor([0]))


def test_every_example_visits_the_first_exit_and_no_gradient_flows() -> None:
    logits_EBC, target_B = _example()
    visited_EB = TrainingRule(threshold=0.0).visited(logits_EBC.requires_grad_(), target_B)
    assert visited_EB[0].all()
    assert visited_EB.dtype == torch.bool
    assert not visited_EB.requires_grad
