"""Networks by name."""

from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from elfnet.errors import RequestError
from elfnet.models.build import build_network, load_initial_weights, network_of, network_signature, resolve_defaults
from elfnet.models.cifar_resnet import BasicBlock
from elfnet.models.weights import export_backbone
from elfnet.recipe.schema import ModelRecipe


@pytest.mark.parametrize("depth", [8, 14, 20, 32, 44, 56])
def test_depth_counts_convolutions_and_the_classifier(depth: int) -> None:
    network = build_network(f"resnet{depth}", classes=10)
    blocks = [sum(isinstance(m, BasicBlock) for m in stage.modules()) for stage in network.stages]
    assert blocks == [0, *[(depth - 2) // 6] * 3]
    logits_EBC = network.eval().logits(torch.zeros(2, 3, 8, 8))
    assert logits_EBC.shape == (4, 2, 10)


def test_plain_network_is_the_same_backbone_with_one_exit() -> None:
    full, plain = build_network("resnet8", classes=5).eval(), build_network("resnet8", classes=5, exits=False).eval()
    assert plain.exits == 1
    backbone = {
        name: value
        for name, value in full.state_dict().items()
        if not name.startswith(("heads.0", "heads.1", "heads.2"))
    }
    # stages.K.rest of the network with exits is stages.0.K.rest of the plain one, which has head 0 only.
    renamed = {
        name.replace("stages.", "stages.0.", 1).replace("heads.3", "heads.0"): value for name, value in backbone.items()
    }
    plain.load_state_dict(renamed)
    images = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(plain.logits(images)[0], full.logits(images)[-1], atol=1e-5)


@pytest.mark.parametrize("head", ["linear", "cosine"])
def test_every_exit_gets_the_kind_of_head_asked_for(head: str) -> None:
    network = build_network("resnet8", classes=5, image_channels=1, head=head, head_filters=6, head_stride=1)
    kinds = {type(h.get_submodule("classifier")).__name__ for h in network.heads}
    assert kinds == {"LinearClassifier" if head == "linear" else "CosineClassifier"}
    assert network.classes == 5
    early = network.heads[0].get_submodule("trunk.0")
    assert early.get_parameter("weight").shape == (6, 16, 3, 3)
    assert network.logits(torch.zeros(2, 1, 8, 8)).shape == (4, 2, 5)


def test_unknown_backbone_is_refused() -> None:
    with pytest.raises(RequestError, match=r"unknown model.backbone 'resnet_32'; did you mean 'resnet32'\?"):
        build_network("resnet_32", classes=10)


SMALL = ModelRecipe(backbone="resnet8")
CHANGES: tuple[dict[str, Any], ...] = (
    {},
    {"backbone": "resnet14"},
    {"exits": False},
    {"head": "cosine"},
    {"head_filters": 8},
    {"exit_head": "separable"},
    {"backbone": "resnet10"},
    {"backbone": "resnet10", "exit_head": "conv"},
    {"backbone": "resnet10", "head_filters": 8},
    {"head_stride": 1},
    {"exits": False, "head": "cosine"},
)


def test_every_setting_reaches_the_network() -> None:
    model = ModelRecipe(backbone="resnet14", head="cosine", head_filters=5, head_stride=1)
    network = network_of(model, classes=3, image_channels=1)
    assert len(list(network.stages[1].children())) == 2
    assert network.heads[0].get_submodule("trunk")(torch.zeros(2, 16, 4, 4)).shape == (2, 5, 4, 4)
    assert network.logits(torch.zeros(2, 1, 8, 8)).shape == (4, 2, 3)
    plain = network_of(ModelRecipe(backbone="resnet8", exits=False), classes=3, image_channels=1)
    assert plain.exits == 1


def test_signatures_tell_networks_apart() -> None:
    signatures = [network_signature(SMALL.model_copy(update=c), classes=10, image_channels=3) for c in CHANGES]
    signatures.append(network_signature(SMALL, classes=11, image_channels=3))
    signatures.append(network_signature(SMALL, classes=10, image_channels=1))
    assert all(a != b for a, b in combinations(signatures, 2))
    assert all("\n" not in signature for signature in signatures)


def test_head_settings_that_a_plain_network_does_not_have_do_not_count() -> None:
    plain = SMALL.model_copy(update={"exits": False})
    other = plain.model_copy(update={"head_filters": 8, "head_stride": 1})
    assert network_signature(plain, classes=10, image_channels=3) == network_signature(
        other, classes=10, image_channels=3
    )


def test_signatures_of_checkpoints_that_exist_stay_valid() -> None:
    expected = "resnet8 with exits, linear heads of 64 filters at stride 2, 10 classes, 3 channels"
    for written in (SMALL, SMALL.model_copy(update={"head_filters": 64, "exit_head": "conv"})):
        assert network_signature(written, classes=10, image_channels=3) == expected


def test_settings_left_to_the_backbone_are_written_out() -> None:
    assert resolve_defaults(SMALL) == resolve_defaults(
        SMALL.model_copy(update={"head_filters": 64, "exit_head": "conv"})
    )
    assert resolve_defaults(SMALL).head_filters == 64
    large = resolve_defaults(ModelRecipe(backbone="resnet50"))
    assert (large.exit_head, large.head_filters) == ("separable", 0)
    assert resolve_defaults(ModelRecipe(backbone="densenet169")).exit_head == "conv"
    assert resolve_defaults(ModelRecipe(backbone="resnet50", exit_head="conv", head_filters=8)).head_filters == 8


def test_weights_are_read_when_a_run_starts_and_never_to_build_the_network(tmp_path: Path) -> None:
    file = tmp_path / "w.safetensors"
    torch.manual_seed(1)
    published = export_backbone(network_of(SMALL, classes=3, image_channels=1))
    save_file(published, file)
    model = SMALL.model_copy(update={"weights": str(file), "weights_licence": "apache-2.0"})
    network = network_of(model, classes=3, image_channels=1)
    loaded = load_initial_weights(model, network)
    assert loaded is not None
    assert loaded.loaded == 44
    assert all(torch.equal(value, published[name]) for name, value in export_backbone(network).items())
    assert load_initial_weights(SMALL, network) is None
    gone = model.model_copy(update={"weights": str(tmp_path / "gone")})
    network = network_of(gone, classes=3, image_channels=1)
    with pytest.raises(RequestError, match="there is no file"):
        load_initial_weights(gone, network)
    without = model.model_copy(update={"weights_licence": " "})
    with pytest.raises(RequestError, match=r"needs model.weights_licence, .* such as apache-2.0; own; or unknown"):
        load_initial_weights(without, network)
