"""Parts of a batch for gradient accumulation."""

import torch
from torch import Tensor

from elfnet.losses.base import Labels
from elfnet.losses.cross_entropy import CrossEntropyLoss
from elfnet.methods.mixing import MixedBatch
from elfnet.train.loop import parts_of

IMAGES = torch.rand(6, 1, 8, 8, generator=torch.Generator().manual_seed(0))
FIRST, SECOND = torch.tensor([0, 1, 2, 0, 1, 2]), torch.tensor([2, 2, 1, 0, 0, 1])


def test_parts_of_a_mixed_batch_hold_it_all() -> None:
    importance = torch.arange(6) + 1.0
    batch = MixedBatch(IMAGES, Labels(FIRST, SECOND, 0.3, importance))
    parts = parts_of(batch, 4)
    assert torch.equal(torch.cat([part.images for part in parts]), IMAGES)
    assert torch.equal(torch.cat([part.labels.first_B for part in parts]), FIRST)
    assert torch.equal(torch.cat([_second(part) for part in parts]), SECOND)
    assert {part.labels.share for part in parts} == {0.3}
    base, weights_C = CrossEntropyLoss(), torch.ones(3)
    assert torch.equal(torch.cat([part.labels.weight(base, weights_C) for part in parts]), importance)


def _second(batch: MixedBatch) -> Tensor:
    assert batch.labels.second_B is not None
    return batch.labels.second_B


def test_parts_leave_out_the_empty_ones_unless_all_are() -> None:
    def first(number: int) -> MixedBatch:
        return MixedBatch(IMAGES[:number], Labels(FIRST[:number]), rows_b=torch.arange(number))

    assert [len(part.images) for part in parts_of(first(2), 3)] == [1, 1]
    assert [len(part.images) for part in parts_of(first(0), 3)] == [0]
