"""Names and shapes of torchvision's state dicts, written down here from the architectures alone."""

from collections.abc import Callable, Iterator

import pytest
import torch

from elfnet.models.build import build_network
from elfnet.models.pretrained import export_backbone, published_names

Named = Iterator[tuple[str, tuple[int, ...]]]


def _norm(name: str, channels: int) -> Named:
    for part in ("weight", "bias", "running_mean", "running_var"):
        yield f"{name}.{part}", (channels,)
    yield f"{name}.num_batches_tracked", ()


def _resnet(blocks: tuple[int, ...], *, expansion: int, groups: int = 1, group_width: int = 64) -> Named:
    yield "conv1.weight", (64, 3, 7, 7)
    yield from _norm("bn1", 64)
    channels = 64
    for group, (count, planes) in enumerate(zip(blocks, (64, 128, 256, 512), strict=True), start=1):
        for index in range(count):
            block, out = f"layer{group}.{index}", planes * expansion
            if expansion == 1:
                kernels = [(planes, channels, 3), (planes, planes, 3)]
            else:
                width = planes // 64 * group_width * groups
                kernels = [(width, channels, 1), (width, width // groups, 3), (out, width, 1)]
            for number, (c_out, c_in, size) in enumerate(kernels, start=1):
                yield f"{block}.conv{number}.weight", (c_out, c_in, size, size)
                yield from _norm(f"{block}.bn{number}", c_out)
            if index == 0 and (group > 1 or channels != out):
                yield f"{block}.downsample.0.weight", (out, channels, 1, 1)
                yield from _norm(f"{block}.downsample.1", out)
            channels = out
    yield "fc.weight", (1000, channels)
    yield "fc.bias", (1000,)


def _densenet(layers: tuple[int, ...]) -> Named:
    yield "features.conv0.weight", (64, 3, 7, 7)
    yield from _norm("features.norm0", 64)
    channels = 64
    for block, count in enumerate(layers, start=1):
        for index in range(1, count + 1):
            layer = f"features.denseblock{block}.denselayer{index}"
            yield from _norm(f"{layer}.norm1", channels)
            yield f"{layer}.conv1.weight", (128, channels, 1, 1)
            yield from _norm(f"{layer}.norm2", 128)
            yield f"{layer}.conv2.weight", (32, 128, 3, 3)
            channels += 32
        if block < 4:
            yield from _norm(f"features.transition{block}.norm", channels)
            yield f"features.transition{block}.conv.weight", (channels // 2, channels, 1, 1)
            channels //= 2
    yield from _norm("features.norm5", channels)
    yield "classifier.weight", (1000, channels)
    yield "classifier.bias", (1000,)


# With the number of tensors that torchvision's own state dicts have.
TORCHVISION: dict[str, tuple[int, Callable[[], Named]]] = {
    "resnet18": (122, lambda: _resnet((2, 2, 2, 2), expansion=1)),
    "resnet34": (218, lambda: _resnet((3, 4, 6, 3), expansion=1)),
    "resnet50": (320, lambda: _resnet((3, 4, 6, 3), expansion=4)),
    "resnet101": (626, lambda: _resnet((3, 4, 23, 3), expansion=4)),
    "resnet152": (932, lambda: _resnet((3, 8, 36, 3), expansion=4)),
    "resnext50_32x4d": (320, lambda: _resnet((3, 4, 6, 3), expansion=4, groups=32, group_width=4)),
    "densenet121": (727, lambda: _densenet((6, 12, 24, 16))),
    "densenet169": (1015, lambda: _densenet((6, 12, 32, 32))),
    "densenet201": (1207, lambda: _densenet((6, 12, 48, 32))),
}


@pytest.mark.parametrize("exits", [True, False])
@pytest.mark.parametrize("backbone", TORCHVISION)
def test_names_and_shapes_are_torchvisions(backbone: str, exits: bool) -> None:
    count, names = TORCHVISION[backbone]
    expected = dict(names())
    assert len(expected) == count
    with torch.device("meta"):
        network = build_network(backbone, classes=1000, exits=exits)
    assert {name: tuple(tensor.shape) for name, tensor in export_backbone(network).items()} == expected


@pytest.mark.parametrize("exits", [True, False])
def test_cifar_networks_bear_the_usual_names(exits: bool) -> None:
    network = build_network("resnet8", classes=10, exits=exits)
    convolutions = {"conv1.weight": (16, 3, 3, 3)}
    for group, (c_in, c) in enumerate(((16, 16), (16, 32), (32, 64)), start=1):
        convolutions |= {f"layer{group}.0.conv1.weight": (c, c_in, 3, 3), f"layer{group}.0.conv2.weight": (c, c, 3, 3)}
    norms = dict(_norm("bn1", 16))
    for group, c in ((1, 16), (2, 32), (3, 64)):
        norms |= dict(_norm(f"layer{group}.0.bn1", c)) | dict(_norm(f"layer{group}.0.bn2", c))
    expected = convolutions | norms | {"linear.weight": (10, 64), "linear.bias": (10,)}
    assert {name: tuple(tensor.shape) for name, tensor in export_backbone(network).items()} == expected


def test_export_is_the_network_itself_and_leaves_the_exits_out() -> None:
    network = build_network("resnet10", classes=3)
    exported, state = export_backbone(network), network.state_dict()
    assert (
        exported["layer2.0.downsample.0.weight"].data_ptr() == state["stages.2.layer2.0.downsample.0.weight"].data_ptr()
    )
    assert exported["fc.bias"].data_ptr() == state["heads.4.classifier.bias"].data_ptr()
    names = published_names(state)
    assert {name for name in state if name not in names} == {
        n for n in state if n.startswith(tuple(f"heads.{k}." for k in range(4)))
    }
