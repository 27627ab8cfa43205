"""BBN's network: all is shared except the last block and the classifier."""

import pytest
import torch

from elfnet.errors import RequestError
from elfnet.models.build import build_network
from elfnet.models.flops import count_cost


def test_has_one_block_and_one_classifier_more_than_the_plain_network() -> None:
    plain = build_network("resnet32", classes=10, exits=False)
    twice = build_network("resnet32", classes=10, exits=False, branches=2)
    # The last block: two 3x3 convolutions of 64 channels and their batch norms; the classifier: 64 x 10 + 10.
    extra = 2 * (64 * 64 * 9 + 2 * 64) + 64 * 10 + 10
    numbers = [sum(p.numel() for p in network.parameters()) for network in (plain, twice)]
    assert numbers[1] - numbers[0] == extra
    costs = [count_cost(network, (3, 32, 32)) for network in (plain, twice)]
    # Two convolutions on 8 x 8 maps, and the classifier.
    assert costs[1].plain - costs[0].plain == 2 * 64 * 64 * 9 * 64 + 64 * 10


def test_branches_start_alike_and_are_not_shared() -> None:
    network = build_network("resnet8", classes=3, exits=False, branches=2)
    frequent, rare = network.heads[0].frequent, network.heads[0].rare
    names = dict(frequent.trunk.named_parameters())  # type: ignore[union-attr]
    for name, parameter in rare.trunk.named_parameters():  # type: ignore[union-attr]
        assert parameter is not names[name]
        assert parameter.shape == names[name].shape
    assert network(torch.zeros(2, 3, 16, 16)).shape == (1, 2, 3)


def test_backbones_without_residual_blocks_are_refused() -> None:
    with pytest.raises(RequestError, match="densenet121 has none"):
        build_network("densenet121", classes=3, exits=False, branches=2)
