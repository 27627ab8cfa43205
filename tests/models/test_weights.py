"""Loading published weights into a backbone."""

import hashlib
import pickle
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from elfnet.errors import RequestError, WorkError
from elfnet.models.build import backbone_of_weights, build_network, load_initial_weights, network_of
from elfnet.models.staged import StagedNetwork
from elfnet.models.weights import (
    export_backbone,
    load_backbone_weights,
    published_names,
    read_weights_file,
    weights_file,
)
from elfnet.recipe.schema import ModelRecipe
from elfnet.run.checkpoint import Checkpoint, save_checkpoint

State = dict[str, Tensor]


def _published(backbone: str, *, classes: int = 6, image_channels: int = 3) -> State:
    torch.manual_seed(5)
    network = build_network(backbone, classes=classes, image_channels=image_channels, exits=False)
    generator = torch.Generator().manual_seed(6)
    state = {name: tensor.clone() for name, tensor in export_backbone(network).items()}
    for name, tensor in state.items():
        if name.endswith(("running_mean", "running_var")):
            tensor.uniform_(0.5, 1.5, generator=generator)
    return state


@pytest.fixture(scope="module")
def resnet10() -> State:
    return _published("resnet10")


def _file(tmp_path: Path, state: State) -> Path:
    save_file(state, tmp_path / "w.safetensors")
    return tmp_path / "w.safetensors"


def _assert_loaded(network: StagedNetwork, state: State, *, classifier: bool = True) -> None:
    for name, tensor in export_backbone(network).items():
        same = torch.equal(tensor, state[name])
        if name.startswith(("fc", "classifier", "linear")):
            assert same is classifier, name
        else:
            assert same, name


@pytest.mark.parametrize("exits", [True, False])
@pytest.mark.parametrize(("backbone", "tensors"), [("resnet10", 74), ("densenet121", 727), ("resnet8", 44)])
def test_everything_is_loaded(tmp_path: Path, backbone: str, tensors: int, exits: bool) -> None:
    state = _published(backbone)
    network = build_network(backbone, classes=6, exits=exits)
    early = {name: value.clone() for name, value in network.heads[:-1].state_dict().items()}
    loaded = load_backbone_weights(network, _file(tmp_path, state))
    _assert_loaded(network, state)
    assert str(loaded) == f"loaded {tensors} of {tensors} tensors from {tmp_path / 'w.safetensors'}"
    assert loaded.sha256 == hashlib.sha256((tmp_path / "w.safetensors").read_bytes()).hexdigest()
    assert all(torch.equal(value, early[name]) for name, value in network.heads[:-1].state_dict().items())


@pytest.mark.parametrize(
    ("head", "classes", "reason"),
    [("linear", 4, "6 classes in the file, 4 here"), ("cosine", 6, "of another kind in the file")],
)
def test_another_classifier_is_not_loaded(
    tmp_path: Path, resnet10: State, head: str, classes: int, reason: str
) -> None:
    network = build_network("resnet10", classes=classes, head=head)
    before = network.heads[-1].get_parameter("classifier.weight").detach().clone()
    loaded = load_backbone_weights(network, _file(tmp_path, resnet10))
    assert loaded.classifier == reason
    assert f"classifier new ({reason})" in str(loaded)
    assert loaded.loaded == loaded.expected - (2 if head == "linear" else 1) == 72
    assert torch.equal(network.heads[-1].get_parameter("classifier.weight"), before)
    for name in ("conv1.weight", "layer4.0.bn2.running_var"):
        assert torch.equal(export_backbone(network)[name], resnet10[name])


def test_a_file_without_classifier(tmp_path: Path, resnet10: State) -> None:
    network = build_network("resnet10", classes=6)
    without = {name: value for name, value in resnet10.items() if not name.startswith("fc.")}
    loaded = load_backbone_weights(network, _file(tmp_path, without))
    assert str(loaded).startswith("loaded 72 of 74 tensors")
    assert loaded.classifier == "the file has none"


@pytest.mark.parametrize("prefix", ["module.", "backbone.", "module.encoder.backbone.", "_orig_mod."])
def test_prefixes_are_recognised(tmp_path: Path, resnet10: State, prefix: str) -> None:
    network = build_network("resnet10", classes=6)
    state = {prefix + name: value for name, value in resnet10.items()} | {"projector.0.weight": torch.zeros(3)}
    loaded = load_backbone_weights(network, _file(tmp_path, state))
    _assert_loaded(network, resnet10)
    assert loaded.ignored == 1
    assert str(loaded).endswith("; 1 other tensors of the file ignored")


def test_torch_file_of_half_precision_in_a_wrapper(tmp_path: Path, resnet10: State) -> None:
    half = {name: value.half() if value.is_floating_point() else value for name, value in resnet10.items()}
    torch.save(
        {"state_dict": {"module." + name: value for name, value in half.items()}, "epoch": 90}, tmp_path / "w.pth"
    )
    network = build_network("resnet10", classes=6)
    load_backbone_weights(network, tmp_path / "w.pth")
    assert network.get_parameter("stages.0.conv1.weight").dtype == torch.float32
    _assert_loaded(network, {name: value.float() for name, value in half.items()})


def test_old_files_have_no_counters(tmp_path: Path, resnet10: State) -> None:
    old = {name: value for name, value in resnet10.items() if not name.endswith("num_batches_tracked")}
    network = build_network("resnet10", classes=6)
    loaded = load_backbone_weights(network, _file(tmp_path, old))
    assert (loaded.loaded, loaded.expected) == (62, 74)
    _assert_loaded(network, old | {n: torch.tensor(0) for n in resnet10.keys() - old.keys()})


def test_old_names_of_densenets(tmp_path: Path) -> None:
    state = _published("densenet121")
    old = {re.sub(r"(denselayer\d+\.(?:norm|conv))([12])", r"\1.\2", name): value for name, value in state.items()}
    assert "features.denseblock1.denselayer1.norm.1.weight" in old
    network = build_network("densenet121", classes=6)
    load_backbone_weights(network, _file(tmp_path, old))
    _assert_loaded(network, state)


@pytest.mark.parametrize("exits", [True, False])
def test_checkpoint_of_a_run(tmp_path: Path, exits: bool) -> None:
    torch.manual_seed(7)
    trained = build_network("resnet8", classes=6, exits=exits)
    momentum = {name: torch.zeros_like(p) for name, p in trained.named_parameters()}
    save_checkpoint(Checkpoint("resnet8", 3, trained.state_dict(), momentum), tmp_path / "last.safetensors")
    for other_exits in (True, False):
        network = build_network("resnet8", classes=6, exits=other_exits)
        load_backbone_weights(network, tmp_path / "last.safetensors")
        _assert_loaded(network, export_backbone(trained))


def _refused(network: StagedNetwork, file: Path) -> str:
    before = {name: value.clone() for name, value in network.state_dict().items()}
    with pytest.raises(WorkError) as caught:
        load_backbone_weights(network, file)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_weights_of_another_architecture_are_refused(tmp_path: Path, resnet10: State) -> None:
    text = _refused(build_network("resnet18", classes=6), _file(tmp_path, resnet10))
    assert "40 missing (layer1.1.conv1.weight, layer1.1.bn1.weight, layer1.1.bn1.bias, ...)" in text
    assert "unknown" not in text
    assert str(tmp_path / "w.safetensors") in text
    assert "name weights of the same model.backbone" in text
    text = _refused(build_network("resnet8", classes=6), _file(tmp_path, resnet10))
    assert "of another shape (conv1.weight 64x3x7x7 instead of 16x3x3x3, bn1.weight 64 instead of 16, " in text
    text = _refused(build_network("densenet121", classes=6), _file(tmp_path, resnet10))
    assert "74 unknown (bn1.bias, " in text


def test_one_wrong_tensor_is_enough(tmp_path: Path, resnet10: State) -> None:
    network = build_network("resnet10", classes=6)
    broken = resnet10 | {"bn1.bias": torch.full((64,), float("nan"))}
    assert "1 not finite (bn1.bias)" in _refused(network, _file(tmp_path, broken))
    whole = resnet10 | {"bn1.bias": torch.zeros(64, dtype=torch.int8)}
    assert "1 of another type (bn1.bias)" in _refused(network, _file(tmp_path, whole))
    more = resnet10 | {"layer5.0.conv1.weight": torch.zeros(1)}
    assert "1 unknown (layer5.0.conv1.weight)" in _refused(network, _file(tmp_path, more))
    grey = build_network("resnet10", classes=6, image_channels=1)
    assert "1 of another shape (conv1.weight 64x3x7x7 instead of 64x1x7x7)" in _refused(grey, _file(tmp_path, resnet10))


TENSORS = {"a.weight": torch.arange(6.0).reshape(2, 3), "a.steps": torch.tensor(4)}


def _assert_read(file: Path, expected: dict[str, Tensor] = TENSORS) -> None:
    found = read_weights_file(file)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], value) for name, value in expected.items())


# Content decides, not the name.
@pytest.mark.parametrize("name", ["w.safetensors", "w.pth", "w"])
def test_safetensors(tmp_path: Path, name: str) -> None:
    save_file(TENSORS, tmp_path / name)
    _assert_read(tmp_path / name)


@pytest.mark.parametrize("old", [True, False])
@pytest.mark.parametrize(
    "content",
    [
        TENSORS,
        {"state_dict": TENSORS, "epoch": 3, "arch": "resnet50"},
        {"model": {"state_dict": TENSORS}},
        {"model_state_dict": {**TENSORS, "version": 2}, "optimizer": {"state": {}}},
    ],
)
def test_torch_files(tmp_path: Path, content: dict[str, Any], old: bool) -> None:
    torch.save(content, tmp_path / "w.pth", _use_new_zipfile_serialization=not old)
    _assert_read(tmp_path / "w.pth")


class _Trap:
    """Touches a file when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.file,))


@pytest.mark.parametrize("how", ["torch", "pickle"])
def test_nothing_executes(tmp_path: Path, how: str) -> None:
    file, touched = tmp_path / "w.pth", tmp_path / "touched"
    content = {"state_dict": TENSORS, "extra": _Trap(touched)}
    if how == "torch":
        torch.save(content, file)
    else:
        file.write_bytes(pickle.dumps({"extra": _Trap(touched)}))
    with pytest.raises(WorkError, match="holds more than tensors") as caught:
        read_weights_file(file)
    assert "\n" not in str(caught.value)
    assert not touched.exists()


@pytest.mark.parametrize("kind", ["safetensors", "torch"])
@pytest.mark.parametrize("kept", [0, 5, 60, -3])
def test_truncated_files_are_refused_in_one_line(tmp_path: Path, kind: str, kept: int) -> None:
    file = tmp_path / "w"
    if kind == "torch":
        torch.save(TENSORS, file)
    else:
        save_file(TENSORS, file)
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.raises(WorkError, match=r"model\.weights: ") as caught:
        read_weights_file(file)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


JUNK = {
    "html": b"<!DOCTYPE html>\n<html><body>Not found</body></html>",
    "nothing": b"",
    "text": b"junk " * 50,
    "empty stack": b"\x80\x02\x85.",
    "half an integer": b"\x80\x02K\x01J\x01",
    "index": b"\x80\x02" + b"0" * 40,
    "unhashable key": b"\x80\x02}]]s.",
    "bytes of 8 exabytes": b"\x80\x04\x8e" + b"\xff" * 7 + b"\x7f" + b"a" * 30,
    "zip": b"PK\x03\x04" + b"\x00" * 60,
}


@pytest.mark.parametrize("suffix", [".safetensors", ".pth", ".onnx"])
@pytest.mark.parametrize("content", JUNK.values(), ids=JUNK)
def test_junk_is_refused_in_one_line(tmp_path: Path, content: bytes, suffix: str) -> None:
    file = tmp_path / f"w{suffix}"
    file.write_bytes(content)
    with pytest.raises(WorkError, match=rf"model\.weights: {re.escape(str(file))} is .*; \w+") as caught:
        read_weights_file(file)
    assert "\n" not in str(caught.value)


def test_random_bytes_are_refused_in_one_line(tmp_path: Path) -> None:
    file, generator = tmp_path / "w.pth", random.Random(0)
    for _ in range(100):
        file.write_bytes(generator.choice([b"", b"\x80\x02"]) + generator.randbytes(generator.randrange(1, 200)))
        with pytest.raises(WorkError, match=r"model\.weights: "):
            read_weights_file(file)


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_a_pointer_of_git_lfs_is_named_as_such(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"w{suffix}"
    file.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n")
    with pytest.raises(WorkError, match=r"is a git-lfs pointer, not the file itself; run 'git lfs pull'$"):
        read_weights_file(file)


def test_the_content_decides_and_not_the_suffix(tmp_path: Path) -> None:
    torch.save(TENSORS, tmp_path / "w.safetensors")
    assert read_weights_file(tmp_path / "w.safetensors").keys() == TENSORS.keys()


def test_a_file_that_is_not_there_or_has_no_tensors(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"there is no file .*nothing"):
        read_weights_file(tmp_path / "nothing")
    for content in ({"epoch": 3}, [1, 2], torch.zeros(3)):
        torch.save(content, tmp_path / "w.pth")
        with pytest.raises(WorkError, match="holds no tensors by name"):
            read_weights_file(tmp_path / "w.pth")


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


def _transformers_name(name: str) -> str:
    """The name that transformers gives to a tensor of a ResNet with this published name."""
    kinds = {"conv": "convolution", "bn": "normalization"}
    head, _, rest = name.partition(".")
    if head in ("conv1", "bn1"):
        return f"resnet.embedder.embedder.{kinds[head[:-1]]}.{rest}"
    if head == "fc":
        return f"classifier.1.{rest}"
    block, part, *tail = rest.split(".")
    where = f"resnet.encoder.stages.{int(head.removeprefix('layer')) - 1}.layers.{block}"
    if part == "downsample":
        return f"{where}.shortcut.{'convolution' if tail[0] == '0' else 'normalization'}.{'.'.join(tail[1:])}"
    return f"{where}.layer.{int(part[-1]) - 1}.{kinds[part[:-1]]}.{'.'.join(tail)}"


@pytest.mark.slow
@pytest.mark.parametrize("backbone", ["resnet10", "resnet50"])
def test_a_folder_of_transformers_fits_its_resnet(backbone: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    published = export_backbone(build_network(backbone, classes=7))
    folder = tmp_path / "saved"
    folder.mkdir()
    save_file({_transformers_name(name): value for name, value in published.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text("{}")
    torch.manual_seed(1)
    network = build_network(backbone, classes=7)
    loaded = load_backbone_weights(network, folder)
    assert (loaded.loaded, loaded.ignored, loaded.classifier) == (len(published), 0, "")
    assert all(torch.equal(value, published[name]) for name, value in export_backbone(network).items())


@pytest.mark.parametrize("backbone", ["resnet8", "resnet14", "resnet10", "resnet18"])
def test_the_backbone_follows_from_the_tensors(backbone: str, tmp_path: Path) -> None:
    state = {f"module.{name}": value for name, value in _published(backbone, classes=11).items()}
    assert backbone_of_weights(_file(tmp_path, state)) == backbone
    without_classifier = {name: value for name, value in state.items() if ".fc." not in name and "linear" not in name}
    assert len(without_classifier) == len(state) - 2
    assert backbone_of_weights(_file(tmp_path, without_classifier)) == backbone


def test_the_backbone_of_a_folder_of_transformers(tmp_path: Path, resnet10: State) -> None:
    save_file({_transformers_name(name): value for name, value in resnet10.items()}, tmp_path / "model.safetensors")
    assert backbone_of_weights(tmp_path) == "resnet10"


def test_tensors_of_no_backbone_are_one_line(tmp_path: Path, resnet10: State) -> None:
    wider = {
        name: value.repeat(2, *[1] * (value.dim() - 1)) if value.dim() else value for name, value in resnet10.items()
    }
    for state in ({"a.weight": torch.zeros(2, 3)}, wider, {**resnet10, "layer5.0.conv1.weight": torch.zeros(1)}):
        with pytest.raises(
            WorkError, match=r"^model.weights: the \d+ tensors of .* are of no backbone known here; give"
        ):
            backbone_of_weights(_file(tmp_path, state))


def test_weights_of_another_backbone_name_it(tmp_path: Path, resnet10: State) -> None:
    model = ModelRecipe(backbone="resnet18", weights=str(_file(tmp_path, resnet10)), weights_licence="own")
    network = network_of(model, classes=6, image_channels=3)
    with pytest.raises(
        WorkError, match=r"has weights of resnet10, not of model.backbone=resnet18; set model.backbone="
    ):
        load_initial_weights(model, network)


def test_the_weights_file_of_a_folder(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"has 0 weights files; name one, or a folder with model\.safetensors"):
        weights_file(tmp_path)
    (tmp_path / "model.safetensors.index.json").touch()
    with pytest.raises(RequestError, match="are in parts; save them as one file"):
        weights_file(tmp_path)
    (tmp_path / "model.safetensors.index.json").unlink()
    (tmp_path / "a.pth").touch()
    assert weights_file(tmp_path) == tmp_path / "a.pth"
    (tmp_path / "b.pt").touch()
    with pytest.raises(RequestError, match="has 2 weights files"):
        weights_file(tmp_path)
    (tmp_path / "pytorch_model.bin").touch()
    assert weights_file(tmp_path) == tmp_path / "pytorch_model.bin"
    (tmp_path / "model.safetensors").touch()
    assert weights_file(tmp_path) == tmp_path / "model.safetensors"
