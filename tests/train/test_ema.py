"""The moving average of weights: against its definition, in a run, and after a resume."""

import torch
from torch import nn

from elfnet.models.build import build_network
from elfnet.models.staged import StagedNetwork
from elfnet.train.optimizer import WeightAverage


def _network(seed: int = 0) -> StagedNetwork:
    torch.manual_seed(seed)
    return build_network("resnet8", classes=3, head_filters=4)


def test_weights_and_statistics_against_the_definition() -> None:
    network = _network()
    average = WeightAverage(network, 0.5)
    expected = {name: value.clone() for name, value in network.state_dict().items()}
    for step in range(6):
        with torch.no_grad():
            for name, value in network.state_dict().items():
                value.copy_(value + step + 1 if name.endswith("tracked") else torch.randn_like(value))
        average.update(network)
        decay = min(0.5, (1 + step) / (10 + step))
        for name, value in network.state_dict().items():
            whole = not value.is_floating_point()
            expected[name] = value.clone() if whole else decay * expected[name] + (1 - decay) * value
    assert average.steps == 6
    for name, value in average.network.state_dict().items():
        assert torch.allclose(value, expected[name], atol=1e-6), name


def test_a_network_without_batch_norm_has_no_counters() -> None:
    network = StagedNetwork([nn.Flatten()], [nn.Linear(4, 2)], classes=2)
    average = WeightAverage(network, 0.5)
    average.update(network)
    averaged, trained = average.network.state_dict(), network.state_dict()
    assert all(torch.equal(averaged[name], trained[name]) for name in trained)


def test_the_average_is_a_network_of_its_own() -> None:
    network = _network()
    average = WeightAverage(network, 0.9)
    before = {name: value.clone() for name, value in average.network.state_dict().items()}
    with torch.no_grad():
        next(network.parameters()).add_(1)
    assert all(torch.equal(value, before[name]) for name, value in average.network.state_dict().items())
    assert not any(parameter.requires_grad for parameter in average.network.parameters())


def test_statistics_fit_the_averaged_weights() -> None:
    """Averaged statistics normalise the averaged network's features about as well as statistics of its own.

    The weights move slowly beside the horizon of the average, as they do at the end of a training.
    """
    network = _network().train()
    average = WeightAverage(network, 0.9)
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(0)
    for _ in range(60):
        images = torch.randn(32, 3, 16, 16, generator=generator)
        optimizer.zero_grad()
        torch.autograd.backward(network.logits(images).square().mean())
        optimizer.step()
        average.update(network)
    fresh = WeightAverage(average.network, 0.9).network.train()
    for module in fresh.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.reset_running_stats()
            module.momentum = None
    for _ in range(20):
        fresh.logits(torch.randn(32, 3, 16, 16, generator=generator))
    images = torch.randn(64, 3, 16, 16, generator=generator)
    with torch.no_grad():
        averaged, own = average.network.eval().logits(images), fresh.eval().logits(images)
    assert (averaged - own).abs().mean() < 0.1 * own.std()
