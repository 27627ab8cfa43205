"""Early exits that learn from the last, against a naive loop."""

import math

import pytest
import torch

from elfnet.criterion.base_loss import build_loss
from elfnet.criterion.distillation import distilled
from elfnet.criterion.exit_loss import ExitLoss
from elfnet.criterion.labels import Labels
from elfnet.errors import RequestError


def _softmax(values: list[float]) -> list[float]:
    powers = [math.exp(v) for v in values]
    return [p / sum(powers) for p in powers]


def test_is_the_softened_divergence_of_each_early_exit() -> None:
    logits_EBC = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(1))
    loss_EB = torch.rand(3, 4, generator=torch.Generator().manual_seed(2))
    share, temperature, scale = 0.4, 2.0, 3.0
    result_EB = distilled(loss_EB, logits_EBC, share=share, temperature=temperature, scale=scale)
    for b in range(4):
        soft = [_softmax((logits_EBC[e, b] * scale / temperature).tolist()) for e in range(3)]
        for e in range(2):
            divergence = sum(t * math.log(t / s) for t, s in zip(soft[2], soft[e], strict=True))
            expected = (1 - share) * float(loss_EB[e, b]) + share * temperature**2 * divergence
            assert float(result_EB[e, b]) == pytest.approx(expected, abs=1e-4)
    assert torch.equal(result_EB[2], loss_EB[2])


def test_the_teacher_takes_no_gradient() -> None:
    logits_EBC = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(1)).requires_grad_()
    distilled(torch.zeros(3, 4), logits_EBC, share=1.0, temperature=3.0).sum().backward()  # type: ignore[no-untyped-call]
    assert logits_EBC.grad is not None
    assert float(logits_EBC.grad[-1].abs().max()) == 0
    assert float(logits_EBC.grad[:-1].abs().min()) > 0


def test_exit_weights_multiply_and_must_be_as_many_as_exits() -> None:
    base, labels = build_loss("ce", [1] * 5), Labels(torch.tensor([0, 1, 2, 3]))
    logits_EBC, visited_EB = torch.randn(3, 4, 5), torch.ones(3, 4, dtype=torch.bool)
    plain_EB = ExitLoss(base, 3)(logits_EBC, labels, visited_EB, torch.ones(5))
    weighted_EB = ExitLoss(base, 3, exit_weights=(1.0, 0.5, 2.0))(logits_EBC, labels, visited_EB, torch.ones(5))
    assert torch.allclose(weighted_EB, plain_EB * torch.tensor([[1.0], [0.5], [2.0]]))
    with pytest.raises(RequestError, match="2 numbers for 3 exits"):
        ExitLoss(base, 3, exit_weights=(1.0, 0.5))
