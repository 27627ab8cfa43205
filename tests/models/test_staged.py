"""Stages and heads, run in order."""

import pytest
import torch
from torch import nn

from elfnet.models.staged import StagedNetwork


def test_head_k_reads_what_stage_k_made() -> None:
    stages: list[nn.Module] = [nn.Linear(4, 5), nn.Linear(5, 6), nn.Linear(6, 7)]
    heads: list[nn.Module] = [nn.Linear(5, 3), nn.Linear(6, 3), nn.Linear(7, 3)]
    network = StagedNetwork(stages, heads, classes=3)
    images = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))
    logits_EBC = network.logits(images)
    assert network.exits == 3
    assert logits_EBC.shape == (3, 2, 3)
    first = stages[0](images)
    assert torch.equal(logits_EBC[0], heads[0](first))
    assert torch.equal(logits_EBC[1], heads[1](stages[1](first)))
    assert torch.equal(logits_EBC[2], heads[2](stages[2](stages[1](first))))


@pytest.mark.parametrize(("stages", "heads"), [(0, 0), (2, 1), (1, 2)])
def test_every_stage_needs_one_head(stages: int, heads: int) -> None:
    with pytest.raises(ValueError, match=f"{stages} stages and {heads} heads"):
        StagedNetwork([nn.Identity()] * stages, [nn.Identity()] * heads, classes=3)
