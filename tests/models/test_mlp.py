"""The staged perceptron: parameters and multiply-adds by hand, independence of rows, and training."""

import numpy as np
import pytest
import torch

from elfnet.models.build import build_network
from elfnet.models.flops import count_cost
from elfnet.models.mlp import DROPOUT, Dense, ResidualDense, staged_mlp


def test_parameters_and_cost_are_those_of_four_linear_layers() -> None:
    network = build_network("mlp", classes=7, image_channels=100)
    layers = (100 + 1) * 256 + 3 * (256 + 1) * 256 + 4 * 2 * 256
    heads = 4 * (256 + 1) * 7
    assert sum(p.numel() for p in network.parameters()) == layers + heads
    cost = count_cost(network, (100, 1, 1))
    assert cost.stages == (100 * 256, 256 * 256, 256 * 256, 256 * 256)
    assert cost.heads == (256 * 7,) * 4


def test_a_layer_against_the_formula() -> None:
    torch.manual_seed(0)
    dense, residual = Dense(5, 8).train(), ResidualDense(8).eval()
    dense.dropout.p = 0.0
    rows_BF = torch.randn(6, 5)
    hidden = dense.linear(rows_BF)
    centred = hidden - hidden.mean(0, keepdim=True)
    expected = (centred / (centred.square().mean(0, keepdim=True) + 1e-5).sqrt()).clamp(min=0)
    found = dense(rows_BF[:, :, None, None])
    assert found.shape == (6, 8, 1, 1)
    assert torch.allclose(found[:, :, 0, 0], expected, atol=1e-5)
    assert torch.allclose(residual(found) - found, Dense.forward(residual, found), atol=1e-6)


def test_dropout_acts_in_training_only() -> None:
    torch.manual_seed(0)
    dense = Dense(5, 400)
    rows = torch.randn(50, 5, 1, 1)
    positive = (dense.eval()(rows) > 0).float().mean()
    assert torch.equal(dense(rows), dense(rows))
    kept = (dense.train()(rows) > 0).float().mean()
    assert float(kept / positive) == pytest.approx(1 - DROPOUT, abs=0.06)


def test_a_row_does_not_depend_on_the_others() -> None:
    network = build_network("mlp", classes=4, image_channels=6).eval()
    rows = torch.randn(9, 6, 1, 1)
    assert torch.allclose(network.logits(rows)[:, 2:3], network.logits(rows[2:3]), atol=1e-5)


def test_a_single_row_can_be_trained_on() -> None:
    """`drop` may leave one row of a batch for the later layers."""
    network = build_network("mlp", classes=4, image_channels=6).train()
    assert network.logits(torch.randn(1, 6, 1, 1)).isfinite().all()


def test_width_and_layers_are_arguments() -> None:
    backbone = staged_mlp(10, width=12, layers=2)
    assert backbone.channels == [12, 12]
    assert len(backbone.stages) == 2


@pytest.mark.parametrize("head", ["linear", "cosine"])
def test_every_exit_learns_what_can_be_learnt(head: str) -> None:
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    labels = torch.from_numpy(rng.integers(0, 3, 200))
    rows = torch.from_numpy(rng.normal(0, 1, (200, 20)).astype(np.float32))
    rows[torch.arange(200), labels] += 3
    network = build_network("mlp", classes=3, image_channels=20, head=head)
    optimiser = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    scale = 10 if head == "cosine" else 1
    for _ in range(40):
        optimiser.zero_grad()
        logits_EBC = network.logits(rows[:, :, None, None]) * scale
        torch.autograd.backward(
            torch.stack([torch.nn.functional.cross_entropy(one, labels) for one in logits_EBC]).sum()
        )
        optimiser.step()
    network.eval()
    right_E = (network.logits(rows[:, :, None, None]).argmax(-1) == labels).float().mean(1)
    assert right_E.min() > 0.95
