"""Cross-entropy against a naive loop."""

import math

import pytest
import torch
from torch.nn import functional

from elfnet.errors import RequestError
from elfnet.losses.base import build_loss
from elfnet.losses.cross_entropy import CrossEntropyLoss, log_probability_of
from elfnet.recipe.load import load_recipe


def _example() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(3, 5, 4, generator=generator) * 3, torch.randint(4, (3, 5), generator=generator)


def test_equals_a_naive_loop_over_exits_and_examples() -> None:
    logits_EBC, target_EB = _example()
    loss_EB = CrossEntropyLoss()(logits_EBC, target_EB)
    assert loss_EB.shape == (3, 5)
    for e in range(3):
        for b in range(5):
            logits, y = logits_EBC[e, b].tolist(), int(target_EB[e, b])
            expected = -math.log(math.exp(logits[y]) / sum(math.exp(one) for one in logits))
            assert float(loss_EB[e, b]) == pytest.approx(expected, abs=2e-6)


def test_gradient_is_probability_minus_one_hot() -> None:
    logits_EBC, target_EB = _example()
    logits_EBC.requires_grad_()
    CrossEntropyLoss()(logits_EBC, target_EB).sum().backward()
    expected = logits_EBC.detach().softmax(-1) - functional.one_hot(target_EB, 4)
    assert logits_EBC.grad is not None
    assert torch.allclose(logits_EBC.grad, expected, atol=1e-6)


def test_log_probability_keeps_the_dtype_it_is_given() -> None:
    logits_EBC, target_EB = _example()
    chosen = log_probability_of(logits_EBC.double(), target_EB)
    assert chosen.dtype == torch.float64
    assert torch.allclose(chosen.exp(), logits_EBC.double().softmax(-1).gather(-1, target_EB[..., None])[..., 0])


@pytest.mark.parametrize("size", [1e4, 1e30])
def test_very_large_logits_give_finite_losses(size: float) -> None:
    logits_BC = torch.tensor([[size, 0.0, -size], [-size, 0.0, size]], requires_grad=True)
    loss_B = CrossEntropyLoss()(logits_BC, torch.tensor([0, 0]))
    assert loss_B.tolist() == pytest.approx([0.0, 2 * size])
    loss_B.sum().backward()
    assert logits_BC.grad is not None
    assert logits_BC.grad.isfinite().all()


@pytest.mark.parametrize("loss", ["ce", "balanced-softmax", "logit-adjusted"])
def test_label_smoothing_equals_torch_on_the_adjusted_logits(loss: str) -> None:
    logits_EBC, target_EB = _example()
    counts = [40, 30, 20, 10]
    prior_C = torch.tensor(counts).div(100).log()
    shifted = logits_EBC if loss == "ce" else logits_EBC + prior_C
    expected = functional.cross_entropy(
        shifted.flatten(0, 1), target_EB.flatten(), reduction="none", label_smoothing=0.2
    )
    found_EB = build_loss(loss, counts, smoothing=0.2)(logits_EBC, target_EB)
    assert torch.allclose(found_EB.flatten(), expected, atol=1e-5)


@pytest.mark.parametrize("loss", ["focal", "ldam"])
def test_label_smoothing_is_refused_where_it_would_do_nothing(loss: str) -> None:
    settings = {"criterion.loss": loss, "criterion.label_smoothing": 0.1, "model.head": "cosine"}
    with pytest.raises(
        RequestError, match=rf"criterion.label_smoothing=0.1 is for cross-entropy, .*loss={loss}; set it"
    ):
        load_recipe("digits/ce", settings)
