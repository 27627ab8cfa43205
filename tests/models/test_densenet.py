"""DenseNets against a forward pass written from the published names, with functions only."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from elfnet.errors import RequestError
from elfnet.models.build import build_network
from elfnet.models.densenet import SMALLEST_IMAGE
from elfnet.models.weights import export_backbone

State = dict[str, Tensor]


def _norm_relu(state: State, name: str, x: Tensor) -> Tensor:
    mean, variance, weight, bias = (
        state[f"features.{name}.{part}"].reshape(1, -1, 1, 1)
        for part in ("running_mean", "running_var", "weight", "bias")
    )
    return ((x - mean) / (variance + 1e-5).sqrt() * weight + bias).relu()


def _published_forward(state: State, images: Tensor) -> Tensor:
    x = functional.conv2d(images, state["features.conv0.weight"], stride=2, padding=3)
    x = functional.max_pool2d(_norm_relu(state, "norm0", x), 3, stride=2, padding=1)
    for block, layers in enumerate((6, 12, 24, 16), start=1):
        outputs = [x]
        for index in range(1, layers + 1):
            layer = f"denseblock{block}.denselayer{index}"
            y = _norm_relu(state, f"{layer}.norm1", torch.cat(outputs, dim=1))
            y = _norm_relu(state, f"{layer}.norm2", functional.conv2d(y, state[f"features.{layer}.conv1.weight"]))
            outputs.append(functional.conv2d(y, state[f"features.{layer}.conv2.weight"], padding=1))
        x = torch.cat(outputs, dim=1)
        if block < 4:
            x = _norm_relu(state, f"transition{block}.norm", x)
            x = functional.avg_pool2d(functional.conv2d(x, state[f"features.transition{block}.conv.weight"]), 2)
    return _norm_relu(state, "norm5", x).mean(dim=(2, 3)) @ state["classifier.weight"].T + state["classifier.bias"]


@pytest.mark.parametrize("size", [32, 71])
def test_equals_the_published_network(size: int) -> None:
    torch.manual_seed(0)
    network = build_network("densenet121", classes=5).eval()
    generator = torch.Generator().manual_seed(3)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            for tensor in (module.weight, module.bias, module.running_mean, module.running_var):
                assert tensor is not None
                tensor.data.uniform_(0.2, 0.8, generator=generator)
    images = torch.randn(2, 3, size, size)
    with torch.no_grad():
        expected = _published_forward(export_backbone(network), images)
        found = network.logits(images)[-1]
    assert torch.allclose(found, expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max()))


def test_exits_read_the_stem_and_the_transitions() -> None:
    with torch.device("meta"):
        network, features = build_network("densenet169", classes=5), torch.zeros(1, 3, 224, 224)
    sizes = []
    for stage in network.stages:
        features = stage(features)
        sizes.append(tuple(features.shape[1:]))
    assert sizes == [(64, 56, 56), (128, 28, 28), (256, 14, 14), (640, 7, 7), (1664, 7, 7)]


def test_smallest_image() -> None:
    with torch.device("meta"):
        network = build_network("densenet121", classes=5)
        assert network.logits(torch.zeros(2, 3, SMALLEST_IMAGE, 40)).shape == (5, 2, 5)
        with pytest.raises(RequestError, match=r"images of 28 x 40 pixels are too small for a DenseNet.* 29 x 29"):
            network.logits(torch.zeros(2, 3, SMALLEST_IMAGE - 1, 40))


def test_the_reason_for_the_smallest_image() -> None:
    """Without the check torch itself fails, so the check refuses no valid image."""
    with torch.device("meta"):
        features = torch.zeros(2, 3, SMALLEST_IMAGE - 1, 40)
        network = build_network("densenet121", classes=5)
        for layer in network.stages[0].get_submodule("features").children():
            features = layer(features)
        rest = nn.Sequential(*network.stages[1:])
        with pytest.raises(RuntimeError, match="Output size is too small"):
            rest(features)


def test_weights_start_as_published() -> None:
    torch.manual_seed(0)
    network = build_network("densenet121", classes=1000)
    found = network.get_parameter("stages.2.features.denseblock2.denselayer1.conv2.weight").detach().var()
    assert float(found) == pytest.approx(2 / (128 * 9), rel=0.05)
    assert bool((network.get_parameter("heads.4.classifier.bias") == 0).all())
    weight = network.get_parameter("heads.4.classifier.weight").detach().abs()
    assert 0.99 / 1024**0.5 < float(weight.max()) <= 1 / 1024**0.5
