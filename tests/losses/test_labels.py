"""Labels of mixed examples: weights and losses of both, by their shares."""

import pytest
import torch

from elfnet.losses.base import BaseLoss, Labels, build_loss
from elfnet.losses.elf import ELFLoss
from elfnet.losses.weighting import weighted_batch_mean

COUNTS = [40, 20, 10, 5]
WEIGHTS_C = torch.tensor([0.25, 0.5, 1.0, 2.25])
FIRST, SECOND = torch.tensor([0, 1, 2, 3, 0]), torch.tensor([3, 1, 0, 2, 0])


@pytest.fixture(params=["ce", "ldam", "balanced-softmax"])
def base(request: pytest.FixtureRequest) -> BaseLoss:
    return build_loss(request.param, COUNTS)


def _logits() -> torch.Tensor:
    return torch.rand(2, 5, 4, generator=torch.Generator().manual_seed(0)) * 2 - 1


def test_the_step_is_the_weighted_mean_of_both_losses(base: BaseLoss) -> None:
    share, logits_EBC = 0.3, _logits()
    labels = Labels(FIRST, SECOND, share)
    loss_B = ELFLoss(base).at_exits(logits_EBC, labels, torch.ones(2, 5, dtype=torch.bool), WEIGHTS_C).sum(dim=0)
    step = float(weighted_batch_mean(loss_B, labels.weight(base, WEIGHTS_C)))
    total = weight = 0.0
    for b in range(5):
        for part, label in ((share, FIRST[b]), (1 - share, SECOND[b])):
            w = part * float(WEIGHTS_C[label])
            weight += w
            total += w * sum(float(base(logits_EBC[e, b], label)) for e in range(2))
    assert step == pytest.approx(total / weight, abs=1e-4)


@pytest.mark.parametrize("share", [1.0, 0.0])
def test_a_share_of_everything_is_an_unmixed_batch(base: BaseLoss, share: float) -> None:
    whole = FIRST if share == 1.0 else SECOND
    labels, alone = Labels(FIRST, SECOND, share), Labels(whole)
    logits_EBC = _logits()
    assert torch.equal(labels.leading, whole)
    assert torch.equal(labels.weight(base, WEIGHTS_C), alone.weight(base, WEIGHTS_C))
    assert torch.allclose(labels.loss(base, logits_EBC, WEIGHTS_C), alone.loss(base, logits_EBC, WEIGHTS_C))


def test_the_larger_share_leads() -> None:
    assert torch.equal(Labels(FIRST, SECOND, 0.51).leading, FIRST)
    assert torch.equal(Labels(FIRST, SECOND, 0.49).leading, SECOND)
