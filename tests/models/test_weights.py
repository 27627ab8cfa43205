"""Loading published weights into a backbone."""

import hashlib
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from elfnet.errors import WorkError
from elfnet.models.build import build_network
from elfnet.models.pretrained import export_backbone, load_backbone_weights
from elfnet.models.staged import StagedNetwork
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
