"""ELF's six equations beside a literal loop, in float64."""

import oracles
import pytest
import torch
from torch import Tensor

from elfnet.exits.policy import uniform_policy
from elfnet.losses import CrossEntropyLoss, ELFLoss, LDAMLoss, class_weights

COUNTS = [40, 20, 10, 5]


def _logits(spread: float) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(8)
    logits_EBC = spread * torch.randn(4, 12, 4, generator=generator, dtype=torch.float64)
    return logits_EBC.requires_grad_(), torch.randint(4, (12,), generator=generator)


@pytest.mark.parametrize("threshold", [0.3, 0.6, 0.9, 1.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_exit_and_loss_in_training(threshold: float, weighted: bool) -> None:
    """Eq. 1 to 4."""
    logits_EBC, target_B = _logits(3.0)
    weights_C = class_weights(COUNTS, "effective" if weighted else "none", dtype=torch.float64)
    weights = oracles.effective_weights(COUNTS) if weighted else [1.0] * 4
    labels = target_B.tolist()
    found, exit_B = ELFLoss(CrossEntropyLoss(), threshold)(logits_EBC, target_B, weights_C=weights_C)
    assert exit_B.tolist() == [oracles.exit_in_training(logits_EBC[:, b], y, threshold) for b, y in enumerate(labels)]
    expected = oracles.elf_step_loss(logits_EBC, labels, oracles.cross_entropy, weights, threshold)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-13)
    gradients = [torch.autograd.grad(value, logits_EBC, retain_graph=True)[0] for value in (found, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize(("threshold", "scale"), [("2/C", 1.0), (0.9, 30.0)])
def test_confidence_under_ldam(threshold: float | str, scale: float) -> None:
    """Eq. 1 reads unscaled cosines in the paper; a scale of its own is ours. The loss multiplies by 30 in any case."""
    logits_EBC, target_B = _logits(0.5)
    cosines_EBC = logits_EBC.clamp(-1, 1)
    loss = ELFLoss(LDAMLoss(COUNTS), threshold, confidence_scale=scale)
    found, _ = loss(cosines_EBC, target_B)
    t = 0.5 if threshold == "2/C" else 0.9
    expected = oracles.elf_step_loss(
        cosines_EBC, target_B.tolist(), lambda z, y: oracles.ldam(z, y, COUNTS), [1.0] * 4, t, scale
    )
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("s", [0.4, 0.7, 0.95])
def test_exit_and_answer_at_inference(s: float) -> None:
    """Eq. 5 and 6; no label is read."""
    logits_EBC, _ = _logits(3.0)
    logits_EBC = logits_EBC.detach()
    policy, staying = uniform_policy("s", s, exits=4, scale=1.0), list(range(12))
    found: dict[int, tuple[int, int]] = {}
    for k in range(4):
        decision = policy.decide(k, logits_EBC[k, staying].numpy())
        found |= {b: (k, int(y)) for b, y, leaves in zip(staying, decision[1], decision[0], strict=True) if leaves}
        staying = [b for b, leaves in zip(staying, decision[0], strict=True) if not leaves]
    assert found == {b: oracles.exit_at_inference(logits_EBC[:, b], s) for b in range(12)}
