"""Focal loss against a naive loop and in its limits."""

import math

import pytest
import torch
from torch import Tensor

from elfnet.errors import RequestError
from elfnet.losses.base import Labels
from elfnet.losses.cross_entropy import CrossEntropyLoss, FocalLoss
from elfnet.losses.elf import ELFLoss
from elfnet.losses.weighting import weighted_batch_mean


def _example() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits_EBC = torch.randn(3, 5, 4, generator=generator) * 2
    return logits_EBC.requires_grad_(), torch.randint(4, (3, 5), generator=generator)


def _gradient(loss: Tensor, logits: Tensor) -> Tensor:
    (gradient,) = torch.autograd.grad(loss.sum(), logits)
    return gradient


@pytest.mark.parametrize("gamma", [0.5, 1.0, 2.0])
def test_equals_a_naive_loop_with_its_gradient(gamma: float) -> None:
    logits_EBC, target_EB = _example()
    loss_EB = FocalLoss(gamma=gamma)(logits_EBC, target_EB)
    gradient_EBC = _gradient(loss_EB, logits_EBC)
    for e in range(3):
        for b in range(5):
            logits, y = logits_EBC[e, b].detach().tolist(), int(target_EB[e, b])
            total = sum(math.exp(one) for one in logits)
            p = [math.exp(one) / total for one in logits]
            assert float(loss_EB[e, b].detach()) == pytest.approx(-((1 - p[y]) ** gamma) * math.log(p[y]), abs=5e-6)
            # d/dp of the loss, then dp[y]/dlogit[j] = p[y] (1[j = y] - p[j]).
            slope = gamma * (1 - p[y]) ** (gamma - 1) * math.log(p[y]) - (1 - p[y]) ** gamma / p[y]
            expected = [slope * p[y] * ((j == y) - p[j]) for j in range(4)]
            assert gradient_EBC[e, b].tolist() == pytest.approx(expected, abs=1e-5)


def test_gamma_zero_is_cross_entropy_with_its_gradient() -> None:
    logits_EBC, target_EB = _example()
    focal_EB, entropy_EB = FocalLoss(gamma=0.0)(logits_EBC, target_EB), CrossEntropyLoss()(logits_EBC, target_EB)
    assert torch.equal(focal_EB, entropy_EB)
    assert torch.equal(_gradient(focal_EB, logits_EBC), _gradient(entropy_EB, logits_EBC))


def test_small_gamma_tends_to_cross_entropy() -> None:
    logits_EBC, target_EB = _example()
    focal_EB, entropy_EB = FocalLoss(gamma=1e-6)(logits_EBC, target_EB), CrossEntropyLoss()(logits_EBC, target_EB)
    assert torch.allclose(focal_EB, entropy_EB, atol=1e-4)
    assert torch.allclose(_gradient(focal_EB, logits_EBC), _gradient(entropy_EB, logits_EBC), atol=1e-4)


@pytest.mark.parametrize("gamma", [0.5, 2.0])
@pytest.mark.parametrize("margin", [5.0, 15.0, 17.0, 30.0, 100.0, 1e30])
def test_certain_examples_have_a_finite_gradient(gamma: float, margin: float) -> None:
    """A power below 1 has an infinite slope at p = 1."""
    logits_BC = torch.tensor([[margin, 0.0], [0.0, margin]], requires_grad=True)
    loss_B = FocalLoss(gamma=gamma)(logits_BC, torch.tensor([0, 0]))
    assert loss_B.isfinite().all()
    assert float(loss_B[0].detach()) == pytest.approx(0.0, abs=0.01)
    assert float(loss_B[1].detach()) == pytest.approx(margin, rel=0.02)
    gradient_BC = _gradient(loss_B, logits_BC)
    assert gradient_BC.isfinite().all()
    assert gradient_BC.abs().max() < 2


def test_class_weights_stay_outside_the_probability() -> None:
    """A well-known public implementation has them inside, and so in the factor (1 - p)^gamma, too."""
    logits_EBC, _ = _example()
    target_B, weights_C = torch.tensor([0, 1, 2, 3, 0]), torch.tensor([0.1, 0.5, 1.0, 2.4])
    labels, visited_EB = Labels(target_B), torch.ones(3, 5, dtype=torch.bool)
    loss_EB = ELFLoss(FocalLoss(gamma=2.0)).at_exits(logits_EBC, labels, visited_EB, weights_C)
    step = float(weighted_batch_mean(loss_EB.sum(dim=0), labels.weight(FocalLoss(), weights_C)).detach())
    total = 0.0
    for e in range(3):
        for b, y in enumerate(target_B.tolist()):
            p = float(logits_EBC[e, b].detach().softmax(dim=0)[y])
            total += float(weights_C[y]) * -((1 - p) ** 2) * math.log(p)
    assert step == pytest.approx(total / float(weights_C[target_B].sum()), abs=1e-5)


def test_negative_gamma_is_refused() -> None:
    with pytest.raises(RequestError, match=r"criterion\.focal_gamma=-0\.5 must not be negative"):
        FocalLoss(gamma=-0.5)
