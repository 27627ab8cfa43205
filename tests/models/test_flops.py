"""Multiply-adds: golden numbers of the paper's network, and a count by hand."""

import pytest
import torch

from elfnet.models.build import build_network, network_of
from elfnet.models.flops import NetworkCost, costly_exits, count_cost
from elfnet.models.staged import StagedNetwork
from elfnet.recipe.load import load_recipe

CIFAR = (3, 32, 32)


def _conv(c_in: int, c_out: int, size: int) -> int:
    return 9 * c_in * c_out * size * size


def _by_hand(depth: int, image: int, channels: int, classes: int, filters: int, stride: int) -> NetworkCost:
    """Count without running anything: convolutions and the classifiers."""
    blocks = (depth - 2) // 6
    half = (image + 1) // 2
    quarter = (half + 1) // 2
    stages = (
        _conv(channels, 16, image),
        2 * blocks * _conv(16, 16, image),
        _conv(16, 32, half) + (2 * blocks - 1) * _conv(32, 32, half),
        _conv(32, 64, quarter) + (2 * blocks - 1) * _conv(64, 64, quarter),
    )
    heads = []
    for width, size in ((16, image), (16, image), (32, half)):
        first = -(-size // stride)
        second = -(-first // stride)
        heads.append(_conv(width, filters, first) + _conv(filters, filters, second) + filters * classes)
    return NetworkCost(stages, (*heads, 64 * classes))


def test_resnet32_golden_numbers() -> None:
    plain = build_network("resnet32", classes=10, exits=False)
    assert count_cost(plain, CIFAR).plain == 68_862_592
    assert count_cost(plain, CIFAR).relative == (1.0,)
    assert sum(p.numel() for p in plain.parameters()) == 464_154
    cost = count_cost(build_network("resnet32", classes=10), CIFAR)
    assert cost.plain == 68_862_592
    assert [round(c, 4) for c in cost.relative] == [0.0750, 0.4861, 0.8373, 1.1628]


@pytest.mark.parametrize("classes", [10, 100])
@pytest.mark.parametrize(("backbone", "filters"), [("resnet32", 48), ("resnet20", 32), ("resnet14", 24)])
def test_heads_in_proportion_to_the_backbone(backbone: str, filters: int, classes: int) -> None:
    """What the strong recipes rely on: heads that take at most an eighth of the backbone, a first exit of a tenth."""
    cost = count_cost(build_network(backbone, classes=classes, head_filters=filters), CIFAR)
    assert cost.plain == count_cost(build_network(backbone, classes=classes, exits=False), CIFAR).plain
    assert sum(cost.heads[:-1]) / cost.plain <= 0.12
    assert cost.relative[0] <= 0.10
    if backbone == "resnet32":
        assert sum(cost.heads[:-1]) / cost.plain == pytest.approx(0.108, abs=5e-4)
        assert cost.relative[0] == pytest.approx(0.0514, abs=2e-4)


@pytest.mark.parametrize("method", ["joint-strong", "elf-strong", "elf-strong-experts"])
def test_the_strong_recipes_have_such_heads(method: str) -> None:
    model = load_recipe(f"cifar100-lt/{method}").model
    cost = count_cost(network_of(model, classes=100, image_channels=3), CIFAR)
    assert sum(cost.heads[: -model.experts]) / cost.plain <= 0.12
    assert cost.relative[0] <= 0.10


def test_heads_at_stride_one_cost_more_than_the_backbone() -> None:
    cost = count_cost(build_network("resnet32", classes=10, head_stride=1), CIFAR)
    assert sum(cost.heads[:-1]) / 1e6 == pytest.approx(108.5, abs=0.05)
    assert cost.relative[0] == pytest.approx(0.69, abs=0.005)


@pytest.mark.parametrize("head", ["linear", "cosine"])
@pytest.mark.parametrize(
    ("depth", "image", "channels", "filters", "stride"),
    [(8, 32, 1, 64, 2), (14, 9, 3, 7, 2), (20, 16, 3, 32, 1)],
)
def test_equals_a_count_by_hand(depth: int, image: int, channels: int, filters: int, stride: int, head: str) -> None:
    network = build_network(
        f"resnet{depth}", classes=7, image_channels=channels, head=head, head_filters=filters, head_stride=stride
    )
    cost = count_cost(network, (channels, image, image))
    assert cost == _by_hand(depth, image, channels, 7, filters, stride)


def test_sums_over_stages_and_heads() -> None:
    cost = NetworkCost(stages=(10, 20, 40), heads=(3, 5, 30))
    assert cost.plain == 100
    assert cost.to_exit == (13, 38, 108)
    assert cost.relative == (0.13, 0.38, 1.08)


@pytest.mark.parametrize("training", [True, False])
def test_counting_changes_nothing(training: bool) -> None:
    network = build_network("resnet8", classes=3).train(training)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    assert isinstance(network, StagedNetwork)
    count_cost(network, (3, 8, 8))
    assert all(module.training is training for module in network.modules())
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert all(parameter.grad is None for parameter in network.parameters())


def test_exits_that_cannot_save_anything_are_named() -> None:
    assert costly_exits(NetworkCost(stages=(10, 5, 5), heads=(1, 1, 1))) == []
    (warning,) = costly_exits(NetworkCost(stages=(10, 5, 5), heads=(15, 1, 1)))
    assert warning.startswith("exit 1 alone costs 1.19 of the plain backbone")


def test_late_exits_cost_no_more_than_resnet32() -> None:
    late = count_cost(build_network("resnet32_late", classes=100, head_filters=48), CIFAR)
    assert late.plain == count_cost(build_network("resnet32", classes=100, exits=False), CIFAR).plain
    assert late.relative == pytest.approx((0.32, 0.47, 0.68, 1.02), abs=0.01)
