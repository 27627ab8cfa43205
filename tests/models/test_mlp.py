"""The staged perceptron: parameters and multiply-adds by hand, independence of rows, and training."""

import numpy as np
import pytest
import torch

from elfnet.models.build import build_network
from elfnet.models.flops import count_cost
from elfnet.models.mlp import Dense, ResidualDense, staged_mlp


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
    dense, residual = Dense(5, 8), ResidualDense(8)
    rows_BF = torch.randn(3, 5)
    hidden = dense.linear(rows_BF)
    centred = hidden - hidden.mean(1, keepdim=True)
    expected = (centred / (centred.square().mean(1, keepdim=True) + 1e-5).sqrt()).clamp(min=0)
    found = dense(rows_BF[:, :, None, None])
    assert found.shape == (3, 8, 1, 1)
    assert torch.allclose(found[:, :, 0, 0], expected, atol=1e-5)
    assert torch.allclose(residual(found) - found, Dense.forward(residual, found))


def test_residual_layers_start_as_the_identity() -> None:
    network = build_network("mlp", classes=4, image_channels=6)
    features = network.stages[0](torch.randn(5, 6, 1, 1))
    for stage in network.stages[1:]:
        assert torch.equal(stage(features), features)


def test_a_row_does_not_depend_on_the_others_even_in_training() -> None:
    network = build_network("mlp", classes=4, image_channels=6).train()
    rows = torch.randn(9, 6, 1, 1)
    assert torch.allclose(network.logits(rows)[:, 2:3], network.logits(rows[2:3]), atol=1e-5)


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
    right_E = (network.logits(rows[:, :, None, None]).argmax(-1) == labels).float().mean(1)
    assert right_E.min() > 0.95
