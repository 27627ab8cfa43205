"""What every registered backbone must do."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from elfnet.exits.training_rule import TrainingRule
from elfnet.models.build import BACKBONES, build_network
from elfnet.models.flops import count_cost
from elfnet.models.msdnet import PackedBackbone
from elfnet.models.staged import StagedNetwork
from elfnet.models.weights import published_names
from elfnet.train.forward import ExitingForward

CLASSES = 7
SHAPE = (3, 32, 32)


# Large, and made of nothing that a smaller one of their family does not have.
SLOW = {"resnet34", "resnet44", "resnet56", "resnet101", "resnet152", "densenet169", "densenet201"}


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in BACKBONES.names()],
)
def backbone(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _unfilled(backbone: str, *, exits: bool) -> StagedNetwork:
    """The network with whatever is in memory: drawing the first weights of a large one takes long."""
    with torch.device("meta"):
        network = build_network(backbone, classes=CLASSES, exits=exits)
    return network.to_empty(device="cpu")


@pytest.fixture(scope="module")
def network(backbone: str) -> Iterator[StagedNetwork]:
    """One for all tests of a backbone; every test leaves it as it was."""
    network = _unfilled(backbone, exits=True)
    torch.manual_seed(0)
    for name, tensor in network.state_dict().items():
        if tensor.dim() > 1:
            nn.init.kaiming_uniform_(tensor)
        else:
            tensor.fill_(1 if name.endswith(("weight", "running_var")) else 0)
    kept = {name: value.clone() for name, value in network.named_buffers()}
    yield network
    assert all(torch.equal(value, kept[name]) for name, value in network.named_buffers())


@pytest.fixture(scope="module")
def plain(backbone: str, network: StagedNetwork) -> StagedNetwork:
    """The backbone without exits, with the same weights: copied by published name, one for one."""
    plain = _unfilled(backbone, exits=False)
    ours = {published: name for name, published in published_names(network.state_dict()).items()}
    theirs = published_names(plain.state_dict())
    assert set(theirs) == set(plain.state_dict())
    assert sorted(theirs.values()) == sorted(ours)
    state = network.state_dict()
    plain.load_state_dict({name: state[ours[published]] for name, published in theirs.items()})
    return plain


@pytest.fixture
def training(network: StagedNetwork) -> Iterator[StagedNetwork]:
    """The network in training mode; afterwards its statistics and gradients are as before."""
    kept = {name: value.clone() for name, value in network.named_buffers()}
    yield network.train()
    network.zero_grad()
    for name, value in network.named_buffers():
        value.copy_(kept[name])


def _images(count: int) -> Tensor:
    return torch.randn(count, *SHAPE, generator=torch.Generator().manual_seed(1))


def _assert_equal_logits(found: Tensor, expected: Tensor) -> None:
    """Untrained deep networks give large logits, so the tolerance goes with their size."""
    assert found.shape == expected.shape
    assert float((found - expected).abs().max()) <= 1e-4 * float(expected.abs().max())


def test_stages_and_channels_belong_together_whatever_the_image_channels(backbone: str) -> None:
    with torch.device("meta"):
        cut = BACKBONES[backbone].build(1)
        first = cut.stages[0](torch.zeros(2, 1, 32, 32))
    assert len(cut.stages) == len(cut.channels)
    if isinstance(cut, PackedBackbone):
        first = cut.packings[0].coarsest(first)
    assert first.shape[:2] == (2, cut.channels[0])


def test_forward_gives_logits_of_every_exit_for_any_batch_and_layout(network: StagedNetwork) -> None:
    images = _images(3)
    with torch.no_grad():
        logits_EBC = network.eval().logits(images)
        assert logits_EBC.shape == (network.exits, 3, CLASSES)
        assert logits_EBC.dtype == torch.float32
        assert logits_EBC.isfinite().all()
        _assert_equal_logits(network.logits(images[1:2]), logits_EBC[:, 1:2])
        _assert_equal_logits(network.logits(images.to(memory_format=torch.channels_last)), logits_EBC)


def test_plain_network_is_the_last_exit(plain: StagedNetwork, network: StagedNetwork) -> None:
    with torch.no_grad():
        logits_EBC = plain.eval().logits(_images(2))
        assert logits_EBC.shape == (1, 2, CLASSES)
        assert torch.equal(logits_EBC[0], network.eval().logits(_images(2))[-1])


def test_costs_increase_and_the_plain_network_is_cheaper(plain: StagedNetwork, network: StagedNetwork) -> None:
    cost = count_cost(network, SHAPE)
    assert all(a < b for a, b in zip(cost.to_exit, cost.to_exit[1:], strict=False))
    assert cost.to_exit[0] < cost.plain < cost.to_exit[-1]
    alone = count_cost(plain, SHAPE)
    assert alone.to_exit == (alone.plain,) == (cost.plain,)


@pytest.mark.parametrize("left", ["mask", "drop"])
def test_trains_with_examples_that_leave(training: StagedNetwork, left: str) -> None:
    images = _images(6)
    # The same dropout in both passes, up to the first exit.
    torch.manual_seed(0)
    with torch.no_grad():
        predicted_EB = training.logits(images).argmax(dim=2)
    torch.manual_seed(0)
    # Two examples leave at the first exit; the other four have a label that no exit predicts.
    never = [min(set(range(CLASSES)) - set(predicted_EB[:, b].tolist())) for b in range(2, 6)]
    target_B = torch.tensor([*predicted_EB[0, :2].tolist(), *never])
    forward = ExitingForward(training, TrainingRule(threshold=0.0), after_exit="drop" if left == "drop" else "mask")
    logits_EBC, visited_EB = forward(images, target_B)
    assert visited_EB[:2].tolist() == [[True] * 6, [False] * 2 + [True] * 4]
    torch.autograd.backward((logits_EBC * visited_EB.unsqueeze(-1)).square().sum())
    for name, parameter in training.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


def test_one_example_trains(training: StagedNetwork) -> None:
    """One may remain of a batch, on a map of one pixel."""
    with torch.no_grad():
        assert training.logits(_images(1)).isfinite().all()
