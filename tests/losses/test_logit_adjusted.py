"""The logit-adjusted loss and balanced softmax against their definitions, and where both are equal."""

import math

import pytest
import torch

from elfnet.errors import RequestError
from elfnet.losses.base import build_loss
from elfnet.losses.logit_adjusted import log_prior

COUNTS = [40, 20, 10, 5]
LOGITS = torch.tensor([[1.0, 0.5, -0.3, 2.0], [0.1, 0.0, 0.0, -1.0]])
TARGET = torch.tensor([3, 0])


def test_balanced_softmax_is_its_definition() -> None:
    loss_B = build_loss("balanced-softmax", COUNTS)(LOGITS, TARGET)
    for b, y in enumerate(TARGET.tolist()):
        copies = [n * math.exp(float(z)) for n, z in zip(COUNTS, LOGITS[b], strict=True)]
        assert float(loss_B[b]) == pytest.approx(-math.log(copies[y] / sum(copies)), abs=1e-5)


@pytest.mark.parametrize("tau", [0.0, 0.5, 2.0])
def test_logit_adjusted_raises_logits_by_tau_log_prior(tau: float) -> None:
    loss_B = build_loss("logit-adjusted", COUNTS, adjust_tau=tau)(LOGITS, TARGET)
    for b, y in enumerate(TARGET.tolist()):
        raised = [float(z) + tau * math.log(n / sum(COUNTS)) for n, z in zip(COUNTS, LOGITS[b], strict=True)]
        expected = -raised[y] + math.log(sum(map(math.exp, raised)))
        assert float(loss_B[b]) == pytest.approx(expected, abs=1e-5)


def test_equal_counts_and_tau_zero_are_cross_entropy() -> None:
    cross_entropy_B = build_loss("ce", COUNTS)(LOGITS, TARGET)
    assert torch.allclose(build_loss("balanced-softmax", [7] * 4)(LOGITS, TARGET), cross_entropy_B, atol=1e-6)
    assert torch.equal(build_loss("logit-adjusted", COUNTS, adjust_tau=0.0)(LOGITS, TARGET), cross_entropy_B)


def test_a_rare_class_pulls_harder() -> None:
    """At equal logits the gradient on a label grows as its class gets rarer."""
    logits = torch.zeros(4, 4, requires_grad=True)
    loss = build_loss("balanced-softmax", COUNTS)(logits, torch.arange(4)).sum()
    (gradient,) = torch.autograd.grad(loss, logits)
    pull = -gradient.diagonal()
    assert torch.equal(pull.argsort(), torch.arange(4))


def test_a_class_without_example_is_named() -> None:
    with pytest.raises(RequestError, match="class 1 has no training example"):
        log_prior([3, 0])


def test_negative_tau_is_refused() -> None:
    with pytest.raises(RequestError, match="adjust_tau=-1"):
        build_loss("logit-adjusted", COUNTS, adjust_tau=-1)
