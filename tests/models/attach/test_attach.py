"""Models of every kind, cut and compared with the original: logits, gradients, statistics, names."""

import copy
from collections.abc import Callable
from importlib import import_module
from typing import Protocol

import pytest
import torch
from torch import Tensor, nn

from elfnet.errors import RequestError
from elfnet.models.attach.attach import attach_exits
from elfnet.models.attach.recorder import logits_in
from elfnet.models.heads import CosineClassifier
from elfnet.models.staged import BatchNorm2d, StagedNetwork

Build = Callable[[str], nn.Module]


class Attached(Protocol):
    """What the fixture of that name gives."""

    original: nn.Module
    model: nn.Module
    network: StagedNetwork


def _logits(model: nn.Module, images: Tensor) -> Tensor:
    logits = logits_in(model(images))
    assert logits is not None
    return logits


def _last_exit(network: StagedNetwork, images: Tensor) -> Tensor:
    features = images
    for stage in network.stages:
        features = stage(features)
    logits: Tensor = network.heads[-1](features)
    return logits


def _original_names(network: StagedNetwork) -> dict[str, str]:
    """Map the keys of the network to those of the original, without the new heads."""
    new = tuple(f"heads.{k}." for k in range(network.exits - 1))
    keys = [key for key in network.state_dict() if not key.startswith(new)]
    return {key: key.split(".", 2)[2].removeprefix("original.") for key in keys}


def test_last_exit_is_the_original_at_every_batch_size(attached: Attached, images: Tensor) -> None:
    network, original = copy.deepcopy(attached.network).eval(), copy.deepcopy(attached.original).eval()
    assert network.exits == 3
    with torch.no_grad():
        for batch in (1, 2, 5):
            logits_EBC = network(images[:batch])
            assert logits_EBC.shape == (3, batch, network.classes)
            torch.testing.assert_close(logits_EBC[-1], _logits(original, images[:batch]), rtol=1e-4, atol=1e-5)


def test_gradients_and_statistics_in_training_are_the_originals(attached: Attached, images: Tensor) -> None:
    network, original = copy.deepcopy(attached.network).train(), copy.deepcopy(attached.original).train()
    torch.manual_seed(1)
    _logits(original, images).square().sum().backward()  # type: ignore[no-untyped-call]
    torch.manual_seed(1)
    _last_exit(network, images).square().sum().backward()  # type: ignore[no-untyped-call]
    names = _original_names(network)
    expected, buffers = dict(original.named_parameters()), dict(original.named_buffers())
    for key, parameter in network.named_parameters():
        if key in names:
            torch.testing.assert_close(parameter.grad, expected[names[key]].grad, rtol=1e-3, atol=1e-5)
    for key, buffer in network.named_buffers():
        if key in names:
            torch.testing.assert_close(buffer, buffers[names[key]])


def test_parameters_are_the_models_own_under_their_own_names(attached: Attached) -> None:
    names = _original_names(attached.network)
    assert sorted(names.values()) == sorted(attached.model.state_dict())
    own = dict(attached.model.named_parameters())
    for key, parameter in attached.network.named_parameters():
        if key in names:
            assert parameter is own[names[key]]


def test_attaching_leaves_weights_and_statistics_as_they_were(attached: Attached) -> None:
    before = attached.original.state_dict()
    assert all(torch.equal(value, before[name]) for name, value in attached.model.state_dict().items())
    assert all(not m._forward_hooks and not m._forward_pre_hooks for m in attached.model.modules())


def test_attaching_leaves_modes_and_random_state_as_they_were(build_model: Build, images: Tensor) -> None:
    model = build_model("torchvision-like").train()
    frozen = model.get_submodule("layer1.0.bn1").eval()
    random_state = torch.get_rng_state()
    network = attach_exits(model, example=images, head=lambda shape: _Pool(shape[-1]))
    assert [m for m in model.modules() if not m.training] == [frozen]
    assert [m for m in network.modules() if not m.training] == [frozen]
    assert torch.equal(torch.get_rng_state(), random_state)


class _Pool(nn.Module):
    """A head that draws no random numbers when it is made."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.ones(5, width))

    def forward(self, features: Tensor) -> Tensor:
        pooled = features.flatten(1, -2).mean(1) if features.dim() > 2 else features
        return nn.functional.linear(pooled, self.get_buffer("weight"))


def test_state_dict_fits_a_network_attached_again(build_model: Build, images: Tensor) -> None:
    first = attach_exits(build_model("transformers-vit"), example=images).eval()
    other = build_model("transformers-vit")
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(1.0)
    second = attach_exits(other, example=images).eval()
    assert not torch.allclose(first(images), second(images))
    second.load_state_dict(first.state_dict())
    assert torch.equal(first(images), second(images))


@pytest.mark.parametrize("name", ["transformers-vit", "transformers-swin", "timm-like"])
def test_precision_is_movable(build_model: Build, name: str, images: Tensor) -> None:
    network = attach_exits(build_model(name), example=images, head="mean").eval()
    with torch.no_grad():
        single, double = network(images), copy.deepcopy(network).double()(images.double())
    assert double.dtype == torch.float64
    torch.testing.assert_close(double.float(), single, rtol=1e-3, atol=1e-4)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert network(images).dtype == torch.float32


def test_every_part_moves_to_another_device(build_model: Build, images: Tensor) -> None:
    """The meta device computes nothing, but refuses tensors that were not moved to it."""
    network = attach_exits(build_model("transformers-vit"), example=images, head="mean").to("meta")
    assert network(images.to("meta")).device.type == "meta"


def test_mode_switches_dropout_on_and_off(build_model: Build, images: Tensor) -> None:
    network = attach_exits(build_model("transformers-vit"), example=images)
    network.eval()
    assert torch.equal(network(images), network(images))
    network.train()
    assert not torch.equal(network(images), network(images))


def test_cut_inside_a_module_by_name(build_model: Build, images: Tensor) -> None:
    network = attach_exits(
        build_model("transformers-vit"), ["vit.layers.2", "vit.embeddings"], example=images, classes=5
    )
    assert network.exits == 3
    layers = [{key.split(".")[2] for key in s.state_dict() if key.startswith("vit.layers")} for s in network.stages]
    assert layers == [set(), {"0", "1", "2"}, {"3"}]


def test_what_is_not_cut_stays_a_module_of_its_own(build_model: Build, images: Tensor) -> None:
    model = build_model("torchvision-like")
    network = attach_exits(model, ["layer1"], example=images)
    assert network.stages[0].layer1 is model.layer1
    assert network.stages[1].layer2 is model.layer2


def test_step_between_modules(build_model: Build, images: Tensor) -> None:
    network = attach_exits(build_model("dense-like"), [":cat#2"], example=images)
    assert network.stages[0](images).shape == (5, 16, 16, 16)


def test_auto_cuts_at_even_shares_and_the_same_every_time(build_model: Build, images: Tensor) -> None:
    networks = [attach_exits(build_model("timm-like"), example=images, exits=3) for _ in range(2)]
    assert list(networks[0].state_dict()) == list(networks[1].state_dict())
    blocks = [{k.split(".")[1] for k in s.state_dict() if k.startswith("blocks")} for s in networks[0].stages]
    assert blocks == [{"0"}, {"1"}, {"2"}]


def test_a_stage_that_works_in_place_spares_the_head_before_it(images: Tensor) -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.ReLU(inplace=True),
        nn.Conv2d(4, 4, 3),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 5),
    )
    network = attach_exits(model, ["0"], example=images, head="mean")
    features = network.stages[0](images)
    kept = features.clone()
    network.stages[1](features)
    assert torch.equal(features, kept)
    network(images).sum().backward()


def test_one_example_on_one_pixel_can_train(build_model: Build, images: Tensor) -> None:
    """One example may remain in training; torch's own batch norm raises an error there."""
    model = build_model("torchvision-like")
    one = images[:1]
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        _logits(model.train(), one)
    network = attach_exits(model, example=images).train()
    _last_exit(network, one).sum().backward()  # type: ignore[no-untyped-call]
    assert isinstance(network.stages[0].bn1, BatchNorm2d)


def test_own_head_gets_the_shape(build_model: Build, images: Tensor) -> None:
    shapes: list[tuple[int, ...]] = []

    def head(shape: tuple[int, ...]) -> nn.Module:
        shapes.append(shape)
        return nn.Sequential(nn.Flatten(), nn.LazyLinear(5))

    attach_exits(build_model("torchvision-like"), ["maxpool", "layer2"], example=images, head=head)
    assert shapes == [(8, 4, 4), (16, 2, 2)]


def test_cosine_exits_need_a_cosine_model(build_model: Build, images: Tensor) -> None:
    model = build_model("torchvision-like")
    with pytest.raises(RequestError, match="own classifier returns cosines"):
        attach_exits(model, example=images, classifier="cosine")
    model.fc = CosineClassifier(16, 5)
    network = attach_exits(model, example=images, classifier="cosine").eval()
    assert float(network(images * 100).detach().abs().max()) <= 1.0 + 1e-5


class _Repeated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.fc = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.layer(self.layer(x).relu()).relu())  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"at": ["layer9"]}, "the model has no module 'layer9'; did you mean 'layer"),
        (
            {"at": ["layer1.0.conv1"]},
            "cannot cut after 'layer1.0.conv1': 2 tensors are live there; nearest legal cuts: ",
        ),
        ({"at": ["fc"]}, "cannot cut after 'fc': it is part of the model's own head"),
        ({"at": ["layer1.0.relu"]}, "cannot cut after 'layer1.0.relu': it runs 2 times; nearest legal cuts: "),
        ({"at": ["layer1", "layer1.1"]}, "at names one place twice: 'layer1.1' is 'layer1'; remove"),
        ({"at": []}, "names no place"),
        ({"at": [3]}, "at=3 must name a module"),
        ({"at": "layer1"}, "must be a list of names or 'auto'"),
        ({"at": ["layer1"], "exits": 3}, "exits=3 and 1 names in at contradict"),
        ({"exits": 1}, "exits=1 is not possible"),
        ({"exits": 99}, "exits=99 is not possible: the model can be cut at"),
        ({"classes": 7}, "TorchvisionLike has 5 classes, not 7"),
        ({"head": "cnov"}, "unknown head 'cnov'; did you mean 'conv'"),
        ({"head": "class-token"}, "needs tokens"),
        ({"head": lambda _: nn.Flatten()}, r"returns \(5, 128\); it must return logits of shape \(B, 5\)"),
        ({"head": lambda _: 3}, "must return a torch module, not a int"),
        ({"classifier": "cosinus"}, "unknown model.head 'cosinus'"),
        ({"channels": "middle"}, "unknown channels 'middle'"),
    ],
)
def test_refusals_are_one_line(build_model: Build, images: Tensor, asked: dict[str, object], message: str) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        attach_exits(build_model("torchvision-like"), example=images, **asked)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("example", "message"),
    [
        (
            torch.zeros(2, 4, 16, 16),
            r"TorchvisionLike does not run on an example of shape \(2, 4, 16, 16\): RuntimeError",
        ),
        (torch.zeros(0, 3, 16, 16), "example must be a batch of inputs"),
        (torch.zeros(2, 3, 16, 16, dtype=torch.float64), "a float32 tensor"),
        ([1, 2], "not list"),
    ],
)
def test_wrong_examples_are_refused(build_model: Build, example: Tensor, message: str) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        attach_exits(build_model("torchvision-like"), example=example)
    assert "\n" not in str(caught.value)


def test_a_weight_on_both_sides_is_refused() -> None:
    with pytest.raises(RequestError, match=r"stages.0.layer.weight and stages.1.layer.weight are one tensor"):
        attach_exits(_Repeated(), ["layer#1"], example=torch.randn(2, 8))


def test_no_legal_cut_is_refused() -> None:
    class TwoWays(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.fc = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(16, 5)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(torch.cat([self.a(x), self.b(x)], 1))  # type: ignore[no-any-return]

    with pytest.raises(RequestError, match="TwoWays has no place before its own head where exactly one tensor is live"):
        attach_exits(TwoWays(), example=torch.randn(2, 8))


@pytest.mark.parametrize(
    ("package", "build"),
    [
        ("torchvision.models", lambda package: package.resnet18(num_classes=5)),
        ("torchvision.models", lambda package: package.swin_t(num_classes=5)),
        ("timm", lambda package: package.create_model("vit_tiny_patch16_224", num_classes=5)),
    ],
)
def test_models_of_other_packages_where_they_are_present(package: str, build: Callable[[object], nn.Module]) -> None:
    try:
        module = import_module(package)
    # With another build of torch the import may raise anything.
    except Exception as error:
        pytest.skip(f"{package} cannot be imported: {error}")
    network = attach_exits(build(module).eval(), example=torch.randn(2, 3, 224, 224))
    assert network.exits == 3
