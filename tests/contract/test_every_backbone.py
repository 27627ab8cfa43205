"""What every registered backbone must do, with each kind of classifier."""

import pytest
import torch

from elfnet.models.build import BACKBONES, build_network
from elfnet.models.cost import count_cost

SHAPE = (3, 16, 16)


@pytest.fixture(params=BACKBONES.names())
def backbone(request: pytest.FixtureRequest) -> str:
    torch.manual_seed(0)
    return str(request.param)


def test_stages_and_channels_belong_together(backbone: str) -> None:
    cut = BACKBONES[backbone](3)
    assert len(cut.stages) == len(cut.channels)
    features = torch.zeros(2, *SHAPE)
    for stage, channels in zip(cut.stages, cut.channels, strict=True):
        features = stage(features)
        assert features.shape[:2] == (2, channels)


@pytest.mark.parametrize("head", ["linear", "cosine"])
def test_forward_gives_logits_of_every_exit_and_trains(backbone: str, head: str) -> None:
    network = build_network(backbone, classes=7, head=head).train()
    logits_EBC = network.logits(torch.randn(3, *SHAPE))
    assert logits_EBC.shape == (network.exits, 3, 7)
    assert logits_EBC.dtype == torch.float32
    assert logits_EBC.isfinite().all()
    torch.autograd.backward(logits_EBC.square().sum())
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


@pytest.mark.parametrize("channels", [1, 3])
def test_any_number_of_image_channels(backbone: str, channels: int) -> None:
    network = build_network(backbone, classes=4, image_channels=channels, exits=False).eval()
    with torch.no_grad():
        assert network.logits(torch.zeros(1, channels, 8, 8)).shape == (1, 1, 4)


def test_costs_increase_and_the_plain_network_is_cheaper(backbone: str) -> None:
    cost = count_cost(build_network(backbone, classes=7), SHAPE)
    assert all(a < b for a, b in zip(cost.to_exit, cost.to_exit[1:], strict=False))
    assert cost.to_exit[0] < cost.plain < cost.to_exit[-1]
    plain = count_cost(build_network(backbone, classes=7, exits=False), SHAPE)
    assert plain.to_exit == (plain.plain,) == (cost.plain,)


def test_evaluation_does_not_depend_on_the_batch(backbone: str) -> None:
    network = build_network(backbone, classes=7).eval()
    images = torch.randn(3, *SHAPE)
    with torch.no_grad():
        assert torch.allclose(network.logits(images)[:, 1:2], network.logits(images[1:2]), atol=1e-4)
