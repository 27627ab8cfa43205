"""Stages given by hand."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from elfnet.errors import RequestError
from elfnet.models.attach.attach import from_blocks
from elfnet.models.staged import StagedNetwork

EXAMPLE = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))


def _parts(blocks: int = 4) -> tuple[nn.Module, list[nn.Module], nn.Module]:
    torch.manual_seed(0)
    middle: list[nn.Module] = [nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Dropout(0.5)) for _ in range(blocks)]
    return nn.Linear(6, 8), middle, nn.Linear(8, 3)


def _blocks_by_stage(network: StagedNetwork) -> list[int]:
    return [len(list(stage.children())) for stage in network.stages]


def test_stages_lie_between_the_exits() -> None:
    stem, blocks, head = _parts()
    network = from_blocks(stem, blocks, head, [0, 3], example=EXAMPLE, same_as=nn.Sequential(stem, *blocks, head))
    assert _blocks_by_stage(network) == [1, 3, 1]
    assert network(EXAMPLE).shape == (3, 4, 3)
    assert network.classes == 3


def test_auto_takes_even_shares() -> None:
    stem, blocks, head = _parts(6)
    network = from_blocks(stem, blocks, head, example=EXAMPLE, exits=3)
    # Multiply-adds: stem 48, six blocks of 64, head 24: a third is 152, nearest 48 + 2 x 64 = 176.
    assert _blocks_by_stage(network) == [3, 2, 2]


def test_another_model_is_told_apart() -> None:
    stem, blocks, head = _parts()
    other = nn.Sequential(stem, *reversed(blocks), head)
    with pytest.raises(RequestError, match=r"differs from the original in evaluation mode \(logits by"):
        from_blocks(stem, blocks, head, example=EXAMPLE, same_as=other)


class _Pair(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, x


@pytest.mark.parametrize(
    ("at", "message"),
    [
        ([4], r"at=\[4\] must be increasing numbers of blocks in 0..3"),
        ([2, 1], "must be increasing"),
        ([1, 1], "must be increasing"),
        ([], "must be increasing"),
    ],
)
def test_wrong_places(at: Sequence[int], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        from_blocks(*_parts(), at, example=EXAMPLE)


def test_wrong_parts() -> None:
    stem, blocks, head = _parts()
    with pytest.raises(RequestError, match=r"blocks\[1\] returns a tuple; wrap it"):
        from_blocks(stem, [blocks[0], _Pair()], head, example=EXAMPLE)
    with pytest.raises(
        RequestError,
        match=r"stem returns shape \(24,\); it must return features with 4 examples in the first dimension",
    ):
        from_blocks(nn.Flatten(0), blocks, head, example=EXAMPLE)
    with pytest.raises(RequestError, match=r"head returns shape \(4, 3, 1\); it must return logits"):
        from_blocks(stem, blocks, nn.Sequential(head, nn.Unflatten(1, (3, 1))), example=EXAMPLE)
    with pytest.raises(RequestError, match="exits=5 and 1 numbers in at contradict"):
        from_blocks(stem, blocks, head, [1], exits=5, example=EXAMPLE)
