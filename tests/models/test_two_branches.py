"""BBN's network: all is shared except the last block; one classifier reads both."""

import pytest
import torch

from elfnet.errors import RequestError
from elfnet.models.build import build_network
from elfnet.models.flops import count_cost
from elfnet.models.two_branches import TwoBranchHead


def test_has_one_block_more_than_the_plain_network_and_one_bias() -> None:
    plain = build_network("resnet32", classes=10, exits=False)
    twice = build_network("resnet32", classes=10, exits=False, branches=2)
    # The last block: two 3x3 convolutions of 64 channels and their batch norms; the classifier reads 64 features more.
    extra = 2 * (64 * 64 * 9 + 2 * 64) + 64 * 10
    numbers = [sum(p.numel() for p in network.parameters()) for network in (plain, twice)]
    assert numbers[1] - numbers[0] == extra
    costs = [count_cost(network, (3, 32, 32)) for network in (plain, twice)]
    # Two convolutions on 8 x 8 maps, and the classifier.
    assert costs[1].plain - costs[0].plain == 2 * 64 * 64 * 9 * 64 + 64 * 10


def test_branches_start_alike_and_are_not_shared() -> None:
    network = build_network("resnet8", classes=3, exits=False, branches=2)
    head = network.heads[0]
    assert isinstance(head, TwoBranchHead)
    names = dict(head.trunk.frequent.named_parameters())
    for name, parameter in head.trunk.rare.named_parameters():
        assert parameter is not names[name]
        assert parameter.shape == names[name].shape
    assert network(torch.zeros(2, 3, 16, 16)).shape == (1, 2, 3)


def test_backbones_without_residual_blocks_are_refused() -> None:
    with pytest.raises(RequestError, match="densenet121 has none"):
        build_network("densenet121", classes=3, exits=False, branches=2)


def test_the_classifier_has_torchs_initial_weights() -> None:
    """Uniform within 1 / sqrt(128), not He's normal, as in the authors' code."""
    torch.manual_seed(0)
    network = build_network("resnet32", classes=100, exits=False, branches=2)
    weight = network.get_parameter("heads.0.classifier.weight")
    assert weight.shape == (100, 128)
    assert 0.99 / 128**0.5 < float(weight.detach().abs().max()) <= 1 / 128**0.5


def test_weights_of_two_classifiers_are_joined() -> None:
    """Before version 0.2 each branch had a classifier, and the answer was the mean of both."""
    torch.manual_seed(0)
    network = build_network("resnet8", classes=3, exits=False, branches=2).eval()
    head = network.heads[0]
    assert isinstance(head, TwoBranchHead)
    old = {name: tensor for name, tensor in network.state_dict().items() if not name.startswith("heads.")}
    classifiers = {branch: torch.nn.Linear(64, 3) for branch in ("frequent", "rare")}
    for branch, classifier in classifiers.items():
        block = head.trunk.get_submodule(branch)
        old |= {f"heads.0.{branch}.trunk.{name}": tensor.clone() for name, tensor in block.state_dict().items()}
        old |= {f"heads.0.{branch}.classifier.{name}": tensor for name, tensor in classifier.state_dict().items()}
    network.load_state_dict(old)
    images = torch.randn(4, 3, 16, 16)
    features = network.stages[0](images)
    means = [
        classifier(head.trunk.get_submodule(branch)(features).mean(dim=(2, 3)))
        for branch, classifier in classifiers.items()
    ]
    torch.testing.assert_close(network(images)[0], (means[0] + means[1]) / 2)
