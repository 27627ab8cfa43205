"""Small models of common kinds, with random weights and without downloads."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from elfnet.models.attach.attach import attach_exits
from elfnet.models.staged import StagedNetwork

CLASSES = 5
SIDE = 16


def _resnet() -> nn.Module:
    transformers: Any = pytest.importorskip("transformers")
    model: nn.Module = transformers.ResNetForImageClassification(
        transformers.ResNetConfig(
            embedding_size=8, hidden_sizes=[8, 16], depths=[2, 1], layer_type="basic", num_labels=CLASSES
        )
    )
    return model


def _convnext() -> nn.Module:
    transformers: Any = pytest.importorskip("transformers")
    model: nn.Module = transformers.ConvNextForImageClassification(
        transformers.ConvNextConfig(
            hidden_sizes=[8, 16], depths=[2, 2], num_stages=2, patch_size=2, drop_path_rate=0.2, num_labels=CLASSES
        )
    )
    return model


def _vit() -> nn.Module:
    transformers: Any = pytest.importorskip("transformers")
    model: nn.Module = transformers.ViTForImageClassification(
        transformers.ViTConfig(
            hidden_size=16,
            num_hidden_layers=4,
            num_attention_heads=2,
            intermediate_size=32,
            image_size=SIDE,
            patch_size=4,
            hidden_dropout_prob=0.1,
            attention_probs_dropout_prob=0.1,
            num_labels=CLASSES,
        )
    )
    return model


def _swin() -> nn.Module:
    transformers: Any = pytest.importorskip("transformers")
    model: nn.Module = transformers.SwinForImageClassification(
        transformers.SwinConfig(
            image_size=SIDE,
            patch_size=2,
            embed_dim=8,
            depths=[2, 2],
            num_heads=[2, 2],
            window_size=4,
            drop_path_rate=0.2,
            num_labels=CLASSES,
        )
    )
    return model


class _Block(nn.Module):
    """As in torchvision's ResNets: in-place activations and additions."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.downsample = nn.Conv2d(channels_in, channels, 1, stride, bias=False) if stride != 1 else None

    def forward(self, x: Tensor) -> Tensor:
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        out += x if self.downsample is None else self.downsample(x)
        return self.relu(out)  # type: ignore[no-any-return]


class TorchvisionLike(nn.Module):
    """Names and glue of torchvision's ResNet; the last map is 1 x 1 for 16-pixel images."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = nn.Sequential(_Block(8, 8, 1), _Block(8, 8, 1))
        self.layer2 = nn.Sequential(_Block(8, 16, 2), _Block(16, 16, 1))
        self.layer3 = nn.Sequential(_Block(16, 16, 2))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.fc(torch.flatten(self.avgpool(x), 1))  # type: ignore[no-any-return]


class _TimmBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attn = nn.MultiheadAttention(width, 2, batch_first=True)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x)
        x = x + self.attn(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))  # type: ignore[no-any-return]


class TimmLike(nn.Module):
    """Methods and glue of timm's VisionTransformer."""

    def __init__(self) -> None:
        super().__init__()
        self.patch_embed = nn.Conv2d(3, 16, 4, 4)
        self.cls_token = nn.Parameter(torch.randn(1, 1, 16))
        self.pos_embed = nn.Parameter(torch.randn(1, 17, 16))
        self.blocks = nn.Sequential(*(_TimmBlock(16) for _ in range(3)))
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, CLASSES)

    def forward_features(self, x: Tensor) -> Tensor:
        x = self.patch_embed(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], dim=1) + self.pos_embed
        return self.norm(self.blocks(x))  # type: ignore[no-any-return]

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.forward_features(x)[:, 0])  # type: ignore[no-any-return]


class DenseLike(nn.Module):
    """Layers read all earlier features of their block, so only the ends of blocks can be cut."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.grow1 = nn.Conv2d(8, 4, 3, padding=1)
        self.grow2 = nn.Conv2d(12, 4, 3, padding=1)
        self.transition = nn.Conv2d(16, 8, 1)
        self.grow3 = nn.Conv2d(8, 4, 3, padding=1)
        self.classifier = nn.Linear(12, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = torch.cat([x, self.grow1(x).relu()], 1)
        x = torch.cat([x, self.grow2(x).relu()], 1)
        x = nn.functional.avg_pool2d(self.transition(x), 2)
        x = torch.cat([x, self.grow3(x).relu()], 1)
        return self.classifier(x.relu_().mean((2, 3)))  # type: ignore[no-any-return]


MODELS: dict[str, Callable[[], nn.Module]] = {
    "transformers-resnet": _resnet,
    "transformers-convnext": _convnext,
    "transformers-vit": _vit,
    "transformers-swin": _swin,
    "torchvision-like": TorchvisionLike,
    "timm-like": TimmLike,
    "dense-like": DenseLike,
}


@dataclass(frozen=True)
class Attached:
    """A model before exits were attached, and the network. Shared by tests: copy what you change."""

    original: nn.Module
    model: nn.Module
    network: StagedNetwork


@pytest.fixture(scope="session", params=sorted(MODELS))
def attached(request: pytest.FixtureRequest) -> Attached:
    """One kind of model after the other, with three exits."""
    model = build(request.param)
    original = copy.deepcopy(model)
    return Attached(original, model, attach_exits(model, example=_images()[:3]))


@pytest.fixture(scope="session")
def build_model() -> Callable[[str], nn.Module]:
    """A model by name."""
    return build


def build(name: str) -> nn.Module:
    torch.manual_seed(0)
    return MODELS[name]()


@pytest.fixture
def images() -> Tensor:
    return _images()


def _images() -> Tensor:
    return torch.randn(5, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
