"""LDAM: margins, the naive loop, and its limits."""

import math

import pytest
import torch

from elfnet.errors import RequestError
from elfnet.losses.cross_entropy import CrossEntropyLoss
from elfnet.losses.ldam import LDAMLoss, ldam_margins

CIFAR10_LT = [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]
CIFAR100_LT = [int(500 * 0.01 ** (i / 99)) for i in range(100)]


@pytest.mark.parametrize("counts", [CIFAR10_LT, CIFAR100_LT])
def test_golden_margins(counts: list[int]) -> None:
    margins = ldam_margins(counts, max_margin=0.5, power=0.25).tolist()
    assert margins[0] == pytest.approx(0.158114, abs=5e-7)
    assert margins[-1] == pytest.approx(0.5, abs=1e-12)
    assert margins == pytest.approx([0.5 * (counts[-1] / n) ** 0.25 for n in counts])


def test_the_power_is_a_setting() -> None:
    assert ldam_margins([100, 10], max_margin=0.3, power=1.0).tolist() == pytest.approx([0.03, 0.3])
    assert ldam_margins([100, 10], max_margin=0.3, power=0.0).tolist() == pytest.approx([0.3, 0.3])


def test_equals_a_naive_loop() -> None:
    generator = torch.Generator().manual_seed(0)
    cosines_EBC = torch.rand(2, 6, 3, generator=generator) * 2 - 1
    target_EB = torch.randint(3, (2, 6), generator=generator)
    margins = [0.1, 0.25, 0.5]
    loss_EB = LDAMLoss([10, 4, 2], max_margin=0.5, power=1.0)(cosines_EBC, target_EB)
    assert loss_EB.shape == (2, 6)
    for e in range(2):
        for b in range(6):
            y = int(target_EB[e, b])
            scaled = [30 * (c - (margins[y] if j == y else 0)) for j, c in enumerate(cosines_EBC[e, b].tolist())]
            expected = math.log(sum(math.exp(one - scaled[y]) for one in scaled))
            assert float(loss_EB[e, b]) == pytest.approx(expected, abs=2e-5)


def test_zero_margins_are_scaled_cross_entropy_with_its_gradient() -> None:
    generator = torch.Generator().manual_seed(1)
    cosines_BC = (torch.rand(8, 4, generator=generator) * 2 - 1).requires_grad_()
    target_B = torch.randint(4, (8,), generator=generator)
    ldam_B = LDAMLoss([8, 4, 2, 1], max_margin=0.0, scale=7.0)(cosines_BC, target_B)
    entropy_B = CrossEntropyLoss()(7.0 * cosines_BC, target_B)
    assert torch.allclose(ldam_B, entropy_B, atol=1e-6)
    gradients = [torch.autograd.grad(loss.sum(), cosines_BC)[0] for loss in (ldam_B, entropy_B)]
    assert torch.allclose(gradients[0], gradients[1], atol=1e-6)


def test_larger_margins_give_larger_losses() -> None:
    cosines_BC, target_B = torch.tensor([[0.9, 0.1]]), torch.tensor([0])
    losses = [float(LDAMLoss([1, 1], max_margin=m)(cosines_BC, target_B)) for m in (0.0, 0.25, 0.5)]
    assert losses == sorted(losses)
    assert losses[0] < losses[2]


def test_the_loss_owns_the_scale_and_asks_for_cosines() -> None:
    loss = LDAMLoss([2, 1], scale=12.0)
    assert (loss.scale, loss.needs_cosines) == (12.0, True)
    assert CrossEntropyLoss().scale == 1.0
    assert not CrossEntropyLoss().needs_cosines


def test_margins_move_with_the_module_but_are_not_saved() -> None:
    """They follow from the counts, so a checkpoint does not need them."""
    loss = LDAMLoss([2, 1])
    assert dict(loss.named_buffers()).keys() == {"margins_C"}
    assert loss.state_dict() == {}


def test_a_class_without_examples_is_refused() -> None:
    with pytest.raises(RequestError, match="class 1 has no training example"):
        ldam_margins([10, 0, 5], max_margin=0.5, power=0.25)
