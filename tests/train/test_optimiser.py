"""SGD with a rate of its own for the backbone."""

import pytest
import torch

from elfnet.models.build import build_network
from elfnet.models.frozen import freeze_backbone
from elfnet.models.staged import StagedNetwork
from elfnet.train.optimiser import build_sgd, momentum_state, restore_momentum, set_learning_rate

SETTINGS = {"lr": 0.1, "momentum": 0.9, "weight_decay": 1e-2}


def _network() -> StagedNetwork:
    torch.manual_seed(0)
    return build_network("resnet8", classes=3, head_filters=4)


def _steps(network: StagedNetwork, optimiser: torch.optim.Optimizer, rates: tuple[float, ...]) -> None:
    for seed, rate in enumerate(rates):
        generator = torch.Generator().manual_seed(seed)
        for parameter in network.parameters():
            if parameter.requires_grad:
                parameter.grad = torch.randn(parameter.shape, generator=generator)
        set_learning_rate(optimiser, rate)
        optimiser.step()


@pytest.mark.parametrize("factor", [1.0, 0.25, 2.0])
def test_backbone_learns_at_its_part_of_the_rate(factor: float) -> None:
    """Against SGD with momentum and decay written out."""
    network, rates = _network(), (0.1, 0.05, 0.2)
    expected = {}
    parameters = dict(network.named_parameters())
    generators = [torch.Generator().manual_seed(seed) for seed in range(len(rates))]
    gradients = [{n: torch.randn(p.shape, generator=g) for n, p in parameters.items()} for g in generators]
    for name, parameter in parameters.items():
        value, velocity = parameter.detach().clone(), torch.zeros_like(parameter)
        for rate, gradient in zip(rates, gradients, strict=True):
            velocity = 0.9 * velocity + gradient[name] + 1e-2 * value
            value = value - rate * (factor if name.startswith("stages.") else 1.0) * velocity
        expected[name] = value
    _steps(network, build_sgd(network, **SETTINGS, backbone_lr_factor=factor), rates)
    for name, parameter in network.named_parameters():
        assert torch.allclose(parameter, expected[name], atol=1e-5), name


def test_a_frozen_backbone_is_left_alone() -> None:
    network = _network()
    freeze_backbone(network)
    before = {name: p.detach().clone() for name, p in network.named_parameters()}
    optimiser = build_sgd(network, **SETTINGS, backbone_lr_factor=0.0)
    assert sum(len(group["params"]) for group in optimiser.param_groups) == len(list(network.heads.parameters()))
    _steps(network, optimiser, (0.1, 0.1))
    for name, parameter in network.named_parameters():
        assert torch.equal(parameter, before[name]) is name.startswith("stages."), name


@pytest.mark.parametrize("factor", [1.0, 0.25, 0.0])
def test_momentum_goes_on_after_a_restart(factor: float) -> None:
    whole, half = _network(), _network()
    for network in (whole, half):
        if factor == 0:
            freeze_backbone(network)
    _steps(whole, build_sgd(whole, **SETTINGS, backbone_lr_factor=factor), (0.1, 0.1))
    first = build_sgd(half, **SETTINGS, backbone_lr_factor=factor)
    _steps(half, first, (0.1,))
    saved = {name: value.clone() for name, value in momentum_state(first, half).items()}
    second = build_sgd(half, **SETTINGS, backbone_lr_factor=factor)
    restore_momentum(second, half, saved)
    generator = torch.Generator().manual_seed(1)
    for parameter in half.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.randn(parameter.shape, generator=generator)
    set_learning_rate(second, 0.1)
    second.step()
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), half.parameters(), strict=True))
