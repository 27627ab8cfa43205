"""ResNet-9: its residual block, the sizes of its maps, and what its exits cost."""

import pytest
import torch
from torch import Tensor, nn

from elfnet.models.build import BACKBONES, build_network
from elfnet.models.flops import count_cost
from elfnet.models.resnet9 import ResidualBlock, convolution, resnet9


def _images(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def test_block_adds_two_convolutions_to_its_input() -> None:
    block = ResidualBlock(4).eval()
    images = _images(2, 4, 6, 6)
    first, second = block.convolutions
    assert torch.equal(block(images), images + second(first(images)))
    assert sum(isinstance(module, nn.Conv2d) for module in block.modules()) == 2


def test_pooling_halves_the_map() -> None:
    images = _images(2, 3, 8, 8)
    wide = convolution(3, 5).eval()
    pooled = nn.Sequential(*wide, nn.MaxPool2d(2))
    assert wide(images).shape == (2, 5, 8, 8)
    assert pooled(images).shape == convolution(3, 5, pool=True)(images).shape == (2, 5, 4, 4)


@pytest.mark.parametrize("side", [8, 32, 40])
def test_maps_of_the_stages(side: int) -> None:
    cut = resnet9(1)
    features, sides = _images(2, 1, side, side), []
    for stage, channels in zip(cut.stages, cut.channels, strict=True):
        features = stage(features)
        assert features.shape[1] == channels
        sides.append(features.shape[2])
    assert sides == [side // 4, side // 8, side // 8, side // 8]


def test_nine_layers_and_the_cost_that_is_documented() -> None:
    with torch.device("meta"):
        network = build_network("resnet9", classes=10)
    layers = [module for module in network.stages.modules() if isinstance(module, nn.Conv2d)]
    assert len(layers) == 8
    cost = count_cost(network, (3, 32, 32))
    assert cost.plain == pytest.approx(38.6e6, rel=0.01)
    assert cost.relative == pytest.approx([0.149, 0.277, 0.407, 1.016], abs=0.003)


def test_a_stride_takes_images_of_twice_the_side() -> None:
    with torch.device("meta"):
        small, large = (build_network(name, classes=10) for name in ("resnet9", "resnet9_s2"))
    assert [tuple(p.shape) for p in small.parameters()] == [tuple(p.shape) for p in large.parameters()]
    assert large.stages[0](torch.zeros(1, 3, 96, 96, device="meta")).shape == (1, 64, 12, 12)
    assert count_cost(large, (3, 96, 96)).plain == pytest.approx(87e6, rel=0.01)


@pytest.mark.parametrize("name", ["resnet9", "resnet9_s2"])
def test_smallest_image(name: str) -> None:
    """Of one pixel less nothing is left."""
    network, side = build_network(name, classes=10).eval(), BACKBONES[name].smallest_image
    assert network(torch.zeros(1, 3, side, side)).shape == (4, 1, 10)
    with pytest.raises(RuntimeError, match="Output size is too small"):
        network(torch.zeros(1, 3, side - 1, side))
