"""The ELF loss: the base loss summed over the exits visited, and nothing else."""

import math

import pytest
import torch
from torch import Tensor

from elfnet.exits.training_rule import TrainingRule
from elfnet.losses.base import BaseLoss, build_loss
from elfnet.losses.elf import ELFLoss

COUNTS = [40, 20, 10, 5]


@pytest.fixture(params=["ce", "focal", "ldam", "balanced-softmax", "logit-adjusted"])
def base(request: pytest.FixtureRequest) -> BaseLoss:
    return build_loss(request.param, COUNTS)


def _example(exits: int = 3) -> tuple[Tensor, Tensor]:
    """Logits in [-1, 1], so that they may be cosines."""
    generator = torch.Generator().manual_seed(3)
    logits_EBC = torch.rand(exits, 7, 4, generator=generator) * 2 - 1
    return logits_EBC.requires_grad_(), torch.randint(4, (7,), generator=generator)


def test_sums_the_exits_visited(base: BaseLoss) -> None:
    logits_EBC, target_B = _example()
    visits = [1, 2, 3, 3, 1, 2, 3]
    visited_EB = torch.tensor([[e < n for n in visits] for e in range(3)])
    logits_EBC = logits_EBC.detach()
    elf_B = ELFLoss(base).at_exits(logits_EBC, target_B, visited_EB).sum(dim=0)
    for b, n in enumerate(visits):
        expected = sum(float(base(logits_EBC[e, b], target_B[b])) for e in range(n))
        assert float(elf_B[b]) == pytest.approx(expected, abs=1e-5)


def test_exits_not_visited_get_no_gradient(base: BaseLoss) -> None:
    logits_EBC, target_B = _example()
    visited_EB = torch.tensor([[True] * 7, [True] * 3 + [False] * 4, [False] * 7])
    loss_EB = ELFLoss(base).at_exits(logits_EBC, target_B, visited_EB)
    assert torch.equal(loss_EB == 0, ~visited_EB)
    (gradient_EBC,) = torch.autograd.grad(loss_EB.sum(), logits_EBC)
    assert torch.equal(gradient_EBC.abs().sum(-1) > 0, visited_EB)


def test_threshold_one_is_joint_training(base: BaseLoss) -> None:
    logits_EBC, target_B = _example()
    # Even a prediction that is certain in float32 does not exceed 1.
    certain_EBC = torch.where(torch.nn.functional.one_hot(target_B, 4).bool(), 1e4, logits_EBC)
    for logits in (logits_EBC, certain_EBC):
        visited_EB = TrainingRule(threshold=1.0).visited(logits, target_B)
        joint_B = torch.stack([base(logits[e], target_B) for e in range(3)]).sum(dim=0)
        elf_B = ELFLoss(base).at_exits(logits, target_B, visited_EB).sum(dim=0)
        assert torch.equal(elf_B, joint_B)
        gradients = [torch.autograd.grad(x.sum(), logits_EBC, retain_graph=True)[0] for x in (elf_B, joint_B)]
        assert torch.equal(gradients[0], gradients[1])


def test_one_exit_is_the_base_loss(base: BaseLoss) -> None:
    logits_EBC, target_B = _example(exits=1)
    visited_EB = TrainingRule(threshold=0.1).visited(logits_EBC, target_B)
    elf_B = ELFLoss(base).at_exits(logits_EBC, target_B, visited_EB).sum(dim=0)
    assert torch.equal(elf_B, base(logits_EBC[0], target_B))


def test_the_rule_takes_no_gradient() -> None:
    """The gradient of the loss is that of the losses visited, as if the rule were a constant."""
    logits_EBC, target_B = _example()
    base = build_loss("ce", COUNTS)
    visited_EB = TrainingRule(threshold=0.3).visited(logits_EBC, target_B)
    assert 0 < int(visited_EB[1].sum()) < 7
    assert not visited_EB.requires_grad
    (gradient_EBC,) = torch.autograd.grad(ELFLoss(base).at_exits(logits_EBC, target_B, visited_EB).sum(), logits_EBC)
    for e in range(3):
        for b in range(7):
            logits, y = logits_EBC[e, b].tolist(), int(target_B[b])
            total = sum(math.exp(one) for one in logits)
            expected = [(math.exp(one) / total - (j == y)) * float(visited_EB[e, b]) for j, one in enumerate(logits)]
            assert gradient_EBC[e, b].tolist() == pytest.approx(expected, abs=1e-6)
