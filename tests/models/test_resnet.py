"""ImageNet ResNets against a forward pass written from the published names, with functions only."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from elfnet.models.build import build_network
from elfnet.models.resnet import initialise_fan_out
from elfnet.models.staged import StagedNetwork
from elfnet.models.weights import export_backbone

State = dict[str, Tensor]


def _norm(state: State, name: str, x: Tensor) -> Tensor:
    mean, variance, weight, bias = (
        state[f"{name}.{part}"].reshape(1, -1, 1, 1) for part in ("running_mean", "running_var", "weight", "bias")
    )
    return (x - mean) / (variance + 1e-5).sqrt() * weight + bias


def _published_forward(state: State, images: Tensor, *, groups: int = 1) -> Tensor:
    """The forward pass of the published architecture with these weights."""
    x = _norm(state, "bn1", functional.conv2d(images, state["conv1.weight"], stride=2, padding=3)).relu()
    x = functional.max_pool2d(x, 3, stride=2, padding=1)
    blocks = sorted({tuple(map(int, n[5:].split(".")[:2])) for n in state if n.startswith("layer")})
    for group, index in blocks:
        block, shortcut = f"layer{group}.{index}", x
        stride = 2 if group > 1 and index == 0 else 1
        if f"{block}.conv3.weight" in state:
            y = _norm(state, f"{block}.bn1", functional.conv2d(x, state[f"{block}.conv1.weight"])).relu()
            y = functional.conv2d(y, state[f"{block}.conv2.weight"], stride=stride, padding=1, groups=groups)
            y = _norm(state, f"{block}.bn2", y).relu()
            y = _norm(state, f"{block}.bn3", functional.conv2d(y, state[f"{block}.conv3.weight"]))
        else:
            y = functional.conv2d(x, state[f"{block}.conv1.weight"], stride=stride, padding=1)
            y = functional.conv2d(_norm(state, f"{block}.bn1", y).relu(), state[f"{block}.conv2.weight"], padding=1)
            y = _norm(state, f"{block}.bn2", y)
        if f"{block}.downsample.0.weight" in state:
            shortcut = functional.conv2d(x, state[f"{block}.downsample.0.weight"], stride=stride)
            shortcut = _norm(state, f"{block}.downsample.1", shortcut)
        x = (y + shortcut).relu()
    return x.mean(dim=(2, 3)) @ state["fc.weight"].T + state["fc.bias"]


def _with_statistics(network: StagedNetwork) -> StagedNetwork:
    """Batch norms with random statistics, so that errors are visible."""
    generator = torch.Generator().manual_seed(3)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            for tensor in (module.weight, module.bias, module.running_mean, module.running_var):
                assert tensor is not None
                tensor.data.uniform_(0.2, 0.8, generator=generator)
    return network.eval()


@pytest.mark.parametrize("size", [32, 71])
@pytest.mark.parametrize(
    ("backbone", "groups"), [("resnet10", 1), ("resnet18", 1), ("resnet50", 1), ("resnext50_32x4d", 32)]
)
def test_equals_the_published_network(backbone: str, groups: int, size: int) -> None:
    torch.manual_seed(0)
    network = _with_statistics(build_network(backbone, classes=5))
    images = torch.randn(2, 3, size, size)
    with torch.no_grad():
        expected = _published_forward(export_backbone(network), images, groups=groups)
        found = network.logits(images)[-1]
    assert torch.allclose(found, expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max()))


def test_exits_read_the_stem_and_the_groups() -> None:
    with torch.device("meta"):
        network, features = build_network("resnet50", classes=5), torch.zeros(1, 3, 224, 224)
    sizes = []
    for stage in network.stages:
        features = stage(features)
        sizes.append(tuple(features.shape[1:]))
    assert sizes == [(64, 56, 56), (256, 56, 56), (512, 28, 28), (1024, 14, 14), (2048, 7, 7)]


def test_weights_start_with_the_variance_that_keeps_gradients() -> None:
    torch.manual_seed(0)
    convolution = nn.Conv2d(64, 128, 3, stride=2, bias=False)
    initialise_fan_out(nn.Sequential(convolution))
    assert float(convolution.weight.detach().var()) == pytest.approx(2 / (128 * 9), rel=0.05)
    network = build_network("resnet18", classes=1000)
    found = network.get_parameter("stages.3.layer3.0.conv1.weight").detach().var()
    assert float(found) == pytest.approx(2 / (256 * 9), rel=0.05)
    # The last batch norm of a block starts at one: the residual is not switched off at first.
    assert bool((network.get_parameter("stages.3.layer3.0.bn2.weight") == 1).all())
    # torch's default for a linear layer: uniform up to 1 / sqrt(features).
    classifier = network.get_parameter("heads.4.classifier.weight").detach().abs()
    assert 0.99 / 512**0.5 < float(classifier.max()) <= 1 / 512**0.5
