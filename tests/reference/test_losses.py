"""Losses and class weights beside the equations of their papers: values and gradients, in float64."""

from collections.abc import Callable

import oracles
import pytest
import torch
from torch import Tensor

from elfnet.losses import (
    BalancedSoftmaxLoss,
    BaseLoss,
    CrossEntropyLoss,
    ELFLoss,
    FocalLoss,
    LDAMLoss,
    LogitAdjustedLoss,
    ReferenceFocalLoss,
    class_weights,
)

COUNTS = [5000, 1077, 232, 50]
CASES: dict[str, tuple[BaseLoss, Callable[[Tensor, int], Tensor]]] = {
    "ce": (CrossEntropyLoss(), oracles.cross_entropy),
    "focal": (FocalLoss(0.5), lambda z, y: oracles.focal(z, y, 0.5)),
    "focal, gamma 2": (FocalLoss(2.0), lambda z, y: oracles.focal(z, y, 2.0)),
    "focal-reference without weights": (ReferenceFocalLoss(1.0), lambda z, y: oracles.focal(z, y, 1.0)),
    "ldam": (LDAMLoss(COUNTS), lambda z, y: oracles.ldam(z, y, COUNTS)),
    "balanced-softmax": (BalancedSoftmaxLoss(COUNTS), lambda z, y: oracles.balanced_softmax(z, y, COUNTS)),
    "logit-adjusted": (
        LogitAdjustedLoss(COUNTS, tau=1.5),
        lambda z, y: oracles.logit_adjusted(z, y, COUNTS, 1.5),
    ),
}


def _batch() -> tuple[Tensor, Tensor]:
    """Logits in [-1, 1], which may be cosines."""
    generator = torch.Generator().manual_seed(4)
    logits_BC = torch.rand(7, 4, generator=generator, dtype=torch.float64) * 2 - 1
    return logits_BC.requires_grad_(), torch.randint(4, (7,), generator=generator)


@pytest.mark.parametrize("name", CASES)
def test_a_loss_is_that_of_its_paper(name: str) -> None:
    loss, oracle = CASES[name]
    logits_BC, target_B = _batch()
    expected_B = torch.stack([oracle(z, y) for z, y in zip(logits_BC, target_B.tolist(), strict=True)])
    found_B = loss(logits_BC, target_B)
    torch.testing.assert_close(found_B, expected_B, rtol=1e-12, atol=1e-13)
    gradients = [torch.autograd.grad(values.sum(), logits_BC)[0] for values in (found_B, expected_B)]
    torch.testing.assert_close(*gradients, rtol=1e-11, atol=1e-12)


def test_focal_loss_of_the_reference_code() -> None:
    """Weights inside the probability, and a mean over the batch instead of the weights."""
    logits_BC, target_B = _batch()
    weights = oracles.effective_weights(COUNTS)
    values = [
        oracles.focal_of_ldam_code(z, y, 1.0, weights[y]) for z, y in zip(logits_BC, target_B.tolist(), strict=True)
    ]
    expected = torch.stack(values).sum() / len(values)
    weights_C = class_weights(COUNTS, "effective", dtype=torch.float64)
    found, _ = ELFLoss(ReferenceFocalLoss(1.0))(logits_BC[None], target_B, weights_C=weights_C)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-13)
    gradients = [torch.autograd.grad(value, logits_BC, retain_graph=True)[0] for value in (found, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-11, atol=1e-12)


def test_what_the_reference_code_does_to_the_step() -> None:
    """The mean weight of an image of CIFAR-10-LT is 0.17, so its steps are about six times smaller."""
    counts = [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]
    weights = oracles.effective_weights(counts)
    mean = sum(n * w for n, w in zip(counts, weights, strict=True)) / sum(counts)
    assert mean == pytest.approx(0.17, abs=0.005)
    assert 1 / mean == pytest.approx(6, abs=0.2)


def test_class_weights_are_those_of_the_paper() -> None:
    found = class_weights(COUNTS, "effective", dtype=torch.float64).tolist()
    assert found == pytest.approx(oracles.effective_weights(COUNTS), rel=1e-11)
