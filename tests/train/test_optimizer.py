"""SGD and AdamW: rates and decay by group of parameters, and state that survives a restart."""

from typing import Any

import pytest
import torch

from elfnet.errors import RequestError
from elfnet.models.build import build_network
from elfnet.models.staged import StagedNetwork, freeze_backbone
from elfnet.train.optimizer import build_optimizer, optimizer_state, restore_optimizer, set_learning_rate

SETTINGS: dict[str, Any] = {"lr": 0.1, "momentum": 0.9, "weight_decay": 1e-2}


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
    _steps(network, build_optimizer(network, **SETTINGS, backbone_lr_factor=factor), rates)
    for name, parameter in network.named_parameters():
        assert torch.allclose(parameter, expected[name], atol=1e-5), name


def test_a_frozen_backbone_is_left_alone() -> None:
    network = _network()
    freeze_backbone(network)
    before = {name: p.detach().clone() for name, p in network.named_parameters()}
    optimiser = build_optimizer(network, **SETTINGS, backbone_lr_factor=0.0)
    assert sum(len(group["params"]) for group in optimiser.param_groups) == len(list(network.heads.parameters()))
    _steps(network, optimiser, (0.1, 0.1))
    for name, parameter in network.named_parameters():
        assert torch.equal(parameter, before[name]) is name.startswith("stages."), name


RESTARTED: dict[str, dict[str, Any]] = {
    "sgd": {},
    "nesterov": {"nesterov": True},
    "adamw": {"name": "adamw"},
    "no decay on vectors": {"decay_norms_and_biases": False},
}


@pytest.mark.parametrize("settings", RESTARTED.values(), ids=RESTARTED)
@pytest.mark.parametrize("factor", [1.0, 0.25, 0.0])
def test_the_state_goes_on_after_a_restart(factor: float, settings: dict[str, Any]) -> None:
    def build(network: StagedNetwork) -> torch.optim.Optimizer:
        return build_optimizer(network, **SETTINGS, **settings, backbone_lr_factor=factor)

    whole, half = _network(), _network()
    for network in (whole, half):
        if factor == 0:
            freeze_backbone(network)
    _steps(whole, build(whole), (0.1, 0.1))
    first = build(half)
    _steps(half, first, (0.1,))
    saved = {name: value.clone() for name, value in optimizer_state(first, half).items()}
    second = build(half)
    restore_optimizer(second, half, saved)
    generator = torch.Generator().manual_seed(1)
    for parameter in half.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.randn(parameter.shape, generator=generator)
    set_learning_rate(second, 0.1)
    second.step()
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), half.parameters(), strict=True))


@pytest.mark.parametrize(("fused", "device"), [(True, "meta"), (False, "cpu")])
def test_a_fused_step_counts_on_the_device(fused: bool, device: str) -> None:
    """As on a GPU, for which the device without values stands."""
    network = torch.nn.Linear(2, 3, bias=False, device="meta")
    optimizer = torch.optim.AdamW(network.parameters())
    optimizer.defaults["fused"] = fused
    restore_optimizer(optimizer, network, {"step:weight": torch.tensor(3.0), "exp_avg:weight": torch.zeros(3, 2)})
    state = optimizer.state[network.weight]
    assert state["step"].device.type == device
    assert state["exp_avg"].device.type == "meta"


def test_nesterov_against_its_definition() -> None:
    network = _network()
    name, parameter = next(iter(network.named_parameters()))
    value, velocity = parameter.detach().clone(), torch.zeros_like(parameter)
    for seed in range(3):
        gradient = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed)) + 1e-2 * value
        velocity = 0.9 * velocity + gradient
        value = value - 0.1 * (gradient + 0.9 * velocity)
    _steps(network, build_optimizer(network, **SETTINGS, nesterov=True), (0.1, 0.1, 0.1))
    assert torch.allclose(dict(network.named_parameters())[name], value, atol=1e-5)


def test_adamw_against_its_definition() -> None:
    network = _network()
    name, parameter = next(iter(network.named_parameters()))
    value, mean, square = parameter.detach().clone(), torch.zeros_like(parameter), torch.zeros_like(parameter)
    for step in range(1, 4):
        gradient = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(step - 1))
        mean, square = 0.9 * mean + 0.1 * gradient, 0.99 * square + 0.01 * gradient**2
        value = value * (1 - 0.1 * 1e-2)
        value -= 0.1 * (mean / (1 - 0.9**step)) / ((square / (1 - 0.99**step)).sqrt() + 1e-8)
    _steps(network, build_optimizer(network, **SETTINGS, name="adamw", beta2=0.99), (0.1, 0.1, 0.1))
    assert torch.allclose(dict(network.named_parameters())[name], value, atol=1e-5)


def test_vectors_may_be_spared_the_decay() -> None:
    """With a gradient of zero the decay alone moves a parameter."""
    network = _network()
    before = {name: p.detach().clone() for name, p in network.named_parameters()}
    optimizer = build_optimizer(network, **SETTINGS, decay_norms_and_biases=False)
    for parameter in network.parameters():
        parameter.grad = torch.zeros_like(parameter)
    set_learning_rate(optimizer, 0.1)
    optimizer.step()
    for name, parameter in network.named_parameters():
        assert torch.equal(parameter, before[name]) is (parameter.ndim == 1), name


def test_an_unknown_optimizer_lists_the_choices() -> None:
    with pytest.raises(RequestError, match=r"unknown train.optimizer 'lion'; choose from: adamw, sgd"):
        build_optimizer(_network(), **SETTINGS, name="lion")


def test_earlier_stages_have_smaller_rates() -> None:
    network = build_network("resnet8", classes=3)
    optimizer = build_optimizer(
        network, lr=0.5, momentum=0.9, weight_decay=0.0, backbone_lr_factor=0.1, layer_decay=0.75
    )
    set_learning_rate(optimizer, 1.0)
    rate = {parameter: group["lr"] for group in optimizer.param_groups for parameter in group["params"]}
    last = len(network.stages) - 1
    for k, stage in enumerate(network.stages):
        assert {round(rate[parameter], 9) for parameter in stage.parameters()} <= {round(0.1 * 0.75 ** (last - k), 9)}
    assert {rate[parameter] for head in network.heads for parameter in head.parameters()} == {1.0}
