"""Networks by name."""

import pytest
import torch

from elfnet.errors import RequestError
from elfnet.models.build import build_network
from elfnet.models.cifar_resnet import BasicBlock


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
