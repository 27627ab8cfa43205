"""What every registered loss must do."""

# Shapes: E exits, B batch, C classes

import pytest
import torch
from torch import Tensor

from elfnet.errors import RequestError
from elfnet.losses.base import LOSSES, BaseLoss, build_loss

COUNTS = [500, 120, 30, 8, 2]
build_loss("ce", COUNTS)  # fills the registry


@pytest.fixture(params=LOSSES.names())
def loss(request: pytest.FixtureRequest) -> BaseLoss:
    return build_loss(request.param, COUNTS)


def _example(*leading: int, spread: float = 1.0) -> tuple[Tensor, Tensor]:
    """Logits in [-spread, spread]; with 1 they may be cosines."""
    generator = torch.Generator().manual_seed(0)
    logits = (torch.rand(*leading, len(COUNTS), generator=generator) * 2 - 1) * spread
    return logits, torch.randint(len(COUNTS), leading, generator=generator)


def test_the_three_of_the_paper_are_there() -> None:
    assert {"ce", "focal", "ldam"} <= set(LOSSES.names())


@pytest.mark.parametrize("leading", [(6,), (3, 6), (2, 3, 4), (1,), (3, 1)])
def test_is_per_example_finite_and_not_negative(loss: BaseLoss, leading: tuple[int, ...]) -> None:
    logits, target = _example(*leading)
    values = loss(logits, target)
    assert values.shape == leading
    assert values.dtype == torch.float32
    assert values.isfinite().all()
    assert (values >= 0).all()


def test_an_example_does_not_see_its_neighbours(loss: BaseLoss) -> None:
    logits_BC, target_B = _example(8)
    order = torch.tensor([3, 1, 7, 0, 2, 6, 5, 4])
    loss_B = loss(logits_BC, target_B)
    assert torch.equal(loss(logits_BC[order], target_B[order]), loss_B[order])
    for b in range(8):
        assert torch.allclose(loss(logits_BC[b : b + 1], target_B[b : b + 1]), loss_B[b : b + 1], atol=1e-6)


def test_exits_are_as_separate_as_examples(loss: BaseLoss) -> None:
    logits_EBC, target_EB = _example(3, 5)
    each_EB = torch.stack(
        [loss(logits_BC, target_B) for logits_BC, target_B in zip(logits_EBC, target_EB, strict=True)]
    )
    assert torch.allclose(loss(logits_EBC, target_EB), each_EB, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_computes_in_at_least_float32(loss: BaseLoss, dtype: torch.dtype) -> None:
    logits_BC, target_B = _example(6)
    rounded_BC = logits_BC.to(dtype)
    values = loss(rounded_BC, target_B)
    assert values.dtype == torch.float32
    assert torch.equal(values, loss(rounded_BC.float(), target_B))


def test_keeps_float64_with_exact_derivatives(loss: BaseLoss) -> None:
    logits_BC, target_B = _example(6)
    logits_BC = logits_BC.double().requires_grad_()
    values = loss(logits_BC, target_B)
    assert values.dtype == torch.float64
    assert not torch.equal(values, loss(logits_BC.float(), target_B).double())
    assert torch.autograd.gradcheck(lambda logits: loss(logits, target_B), logits_BC)


def test_counts_that_do_not_match_the_logits_are_refused(loss: BaseLoss) -> None:
    if loss.classes is not None:
        with pytest.raises(RequestError, match=r"logits have 4 classes, and \w+ got counts of 5; give one count per"):
            loss(torch.zeros(2, 4), torch.zeros(2, dtype=torch.long))


def test_compiles_in_one_graph(loss: BaseLoss) -> None:
    logits_BC, target_B = _example(6)
    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    assert torch.allclose(compiled(logits_BC, target_B), loss(logits_BC, target_B))


def test_gradient_flows_and_pulls_towards_the_label(loss: BaseLoss) -> None:
    logits_BC, target_B = _example(6)
    logits_BC.requires_grad_()
    loss(logits_BC, target_B).sum().backward()
    assert logits_BC.grad is not None
    assert logits_BC.grad.isfinite().all()
    chosen = torch.zeros_like(logits_BC, dtype=torch.bool).scatter(1, target_B[:, None], True)
    assert (logits_BC.grad[chosen] < 0).all()
    assert (logits_BC.grad[~chosen] > 0).all()


def test_extreme_logits_stay_finite(loss: BaseLoss) -> None:
    logits_BC, target_B = _example(20, spread=1e5)
    logits_BC.requires_grad_()
    values = loss(logits_BC, target_B)
    assert values.isfinite().all()
    values.sum().backward()
    assert logits_BC.grad is not None
    assert logits_BC.grad.isfinite().all()


def test_declares_its_scale(loss: BaseLoss) -> None:
    """The probability that the loss believes in is a softmax of scaled logits: a shift does not change it."""
    assert loss.scale > 0
    logits_BC, target_B = _example(6)
    assert torch.allclose(loss(logits_BC + 0.25, target_B), loss(logits_BC, target_B), atol=1e-4)
