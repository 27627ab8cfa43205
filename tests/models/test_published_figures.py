"""Parameters and multiply-adds of the ImageNet networks, as published for 224 x 224 images and 1,000 classes."""

import pytest
import torch

from elfnet.models.build import build_network
from elfnet.models.flops import count_cost

MAX_OF_ALL_HEADS = 0.08
# Parameters and 10^9 multiply-adds of the plain network; channels that the early exits read.
RESNET, BOTTLENECK = [64, 64, 128, 256], [64, 256, 512, 1024]
PUBLISHED = {
    "resnet18": (11_689_512, 1.81, RESNET),
    "resnet34": (21_797_672, 3.66, RESNET),
    "resnet50": (25_557_032, 4.09, BOTTLENECK),
    "resnet101": (44_549_160, 7.80, BOTTLENECK),
    "resnet152": (60_192_808, 11.51, BOTTLENECK),
    "resnext50_32x4d": (25_028_904, 4.23, BOTTLENECK),
    "densenet121": (7_978_856, 2.83, [64, 128, 256, 512]),
    "densenet169": (14_149_480, 3.36, [64, 128, 256, 640]),
    "densenet201": (20_013_928, 4.29, [64, 128, 256, 896]),
}
# Shares of the plain network's multiply-adds: by hand from the shapes of the heads.
HEADS_BY_HAND = {"resnet50": 0.0506, "densenet169": 0.0552}


@pytest.mark.parametrize("backbone", PUBLISHED)
def test_parameters_costs_and_exits(backbone: str) -> None:
    parameters, giga, channels = PUBLISHED[backbone]
    # On the meta device nothing is computed, so this is fast.
    with torch.device("meta"):
        network = build_network(backbone, classes=1000)
    of_backbone = [network.stages, network.heads[-1]]
    assert sum(p.numel() for part in of_backbone for p in part.parameters()) == parameters
    cost = count_cost(network, (3, 224, 224))
    assert round(cost.plain / 1e9, 2) == giga
    share = sum(cost.heads[:-1]) / cost.plain
    assert share <= MAX_OF_ALL_HEADS
    if backbone in HEADS_BY_HAND:
        assert share == pytest.approx(HEADS_BY_HAND[backbone], abs=5e-5)
    filters = [head.get_parameter("classifier.weight").shape[1] for head in network.heads]
    assert filters[:-1] == channels


def test_resnet10_has_one_block_a_group() -> None:
    """There are no published figures; it is ResNet-18 without the second block of each group."""
    with torch.device("meta"):
        small, large = (build_network(name, classes=1000, exits=False) for name in ("resnet10", "resnet18"))
    second_blocks = sum(2 * 9 * width**2 + 4 * width for width in (64, 128, 256, 512))
    count_small, count_large = (sum(p.numel() for p in network.parameters()) for network in (small, large))
    assert count_small == count_large - second_blocks == 5_418_792


@pytest.mark.parametrize(
    ("backbone", "exit_head", "share"), [("resnet50", "conv", 0.442), ("densenet121", "separable", 0.0069)]
)
def test_the_other_kind_of_head_can_be_asked_for(backbone: str, exit_head: str, share: float) -> None:
    with torch.device("meta"):
        network = build_network(backbone, classes=1000, exit_head=exit_head)
    cost = count_cost(network, (3, 224, 224))
    assert sum(cost.heads[:-1]) / cost.plain == pytest.approx(share, abs=5e-4)
