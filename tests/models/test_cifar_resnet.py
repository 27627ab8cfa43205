"""The option-A shortcut, basic blocks and groups."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from elfnet.models.cifar_resnet import (
    BasicBlock,
    OptionAShortcut,
    block_group,
    initialise_convolutions,
    late_resnet,
    stem,
)


def _images(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("channels", "new", "stride", "size"), [(16, 16, 2, 8), (3, 5, 2, 7), (4, 4, 1, 3)])
def test_shortcut_is_a_naive_subsample_and_zero_pad(channels: int, new: int, stride: int, size: int) -> None:
    images = _images(2, channels, size, size)
    shortcut = OptionAShortcut(new, stride)
    small = -(-size // stride)
    expected = torch.zeros(2, channels + new, small, small)
    for y in range(small):
        for x in range(small):
            for channel in range(channels):
                expected[:, new // 2 + channel, y, x] = images[:, channel, y * stride, x * stride]
    assert torch.equal(shortcut(images), expected)
    assert list(shortcut.parameters()) == []


def test_block_is_two_convolutions_and_the_shortcut() -> None:
    block = BasicBlock(4, 8, stride=2).train()
    images = _images(3, 4, 6, 6)

    def normalised(features: Tensor) -> Tensor:
        mean, variance = (
            features.mean(dim=(0, 2, 3), keepdim=True),
            features.var(dim=(0, 2, 3), keepdim=True, correction=0),
        )
        return (features - mean) / (variance + 1e-5).sqrt()

    inner = normalised(functional.conv2d(images, block.conv1.weight, stride=2, padding=1)).relu()
    outer = normalised(functional.conv2d(inner, block.conv2.weight, padding=1))
    expected = (outer + functional.pad(images[:, :, ::2, ::2], (0, 0, 0, 0, 2, 2))).relu()
    assert torch.allclose(block(images), expected, atol=1e-5)


def test_same_shape_needs_no_shortcut_module() -> None:
    assert isinstance(BasicBlock(8, 8, stride=1).shortcut, nn.Identity)
    assert isinstance(BasicBlock(8, 16, stride=2).shortcut, OptionAShortcut)


@pytest.mark.parametrize(("channels_in", "channels_out", "size"), [(16, 16, 8), (16, 32, 4)])
def test_group_halves_the_map_once_when_channels_grow(channels_in: int, channels_out: int, size: int) -> None:
    group = block_group(3, channels_in, channels_out)
    assert group(_images(2, channels_in, 8, 8)).shape == (2, channels_out, size, size)
    assert sum(isinstance(module, BasicBlock) for module in group.modules()) == 3


def test_stem_keeps_the_map() -> None:
    assert stem(1)(_images(2, 1, 8, 8)).shape == (2, 16, 8, 8)


def test_every_exit_of_the_late_resnet_sees_the_widest_features() -> None:
    backbone = late_resnet(3)
    features, maps, blocks = _images(2, 3, 32, 32), [], []
    for stage in backbone.stages:
        features = stage(features)
        maps.append(tuple(features.shape))
        blocks.append(sum(isinstance(module, BasicBlock) for module in stage.modules()))
    assert maps == [(2, 64, 8, 8)] * 4
    assert blocks == [5, 2, 3, 5]


def test_convolutions_start_with_he_variance() -> None:
    torch.manual_seed(0)
    convolution = nn.Conv2d(64, 64, 3)
    initialise_convolutions(nn.Sequential(convolution))
    assert float(convolution.weight.detach().var()) == pytest.approx(2 / (64 * 9), rel=0.05)
