"""Legal cuts of models small enough to count by hand, and even shares of the cost."""

import pytest
import torch
from torch import Tensor, nn

from elfnet.errors import RequestError
from elfnet.models.attach.attach import attach_exits
from elfnet.models.attach.cuts import Cut, even_cuts, legal_cuts
from elfnet.models.flops import flop_counter


def test_cuts_of_a_chain_by_hand() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(4, 2, 1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(2, 5),
    )
    first, second, last = 64 * 9 * 3 * 4, 64 * 4 * 2, 10
    cuts = legal_cuts(model, torch.randn(2, 3, 8, 8))
    assert [(cut.name, cut.shape) for cut in cuts] == [
        ("0", (4, 8, 8)),
        ("1", (4, 8, 8)),
        ("2", (2, 8, 8)),
        ("3", (2, 1, 1)),
    ]
    total = first + second + last
    assert [cut.share for cut in cuts] == pytest.approx(
        [first / total, first / total, (first + second) / total, (first + second) / total]
    )


class _Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(4, 8)
        self.left, self.right = nn.Linear(8, 8), nn.Linear(8, 8)
        self.after = nn.Linear(8, 8)
        self.fc = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = x + self.right(self.left(x).relu())
        return self.fc(self.after(x).tanh())  # type: ignore[no-any-return]


def test_nothing_inside_a_residual_is_legal() -> None:
    cuts = legal_cuts(_Residual(), torch.randn(2, 4))
    assert [cut.name for cut in cuts] == ["stem", ":add"]
    assert [round(cut.share * 264) for cut in cuts] == [32, 160]


def test_a_cut_may_have_several_names() -> None:
    model = nn.Sequential(nn.Sequential(nn.Linear(4, 8), nn.ReLU()), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 5))
    cuts = legal_cuts(model, torch.randn(2, 4))
    assert [cut.names for cut in cuts] == [("0.0",), ("0", "0.1"), ("1",)]
    network = attach_exits(model, [cuts[1]], example=torch.randn(2, 4))
    assert list(network.stages[0].state_dict()) == ["0.0.weight", "0.0.bias"]


def test_transposed_batches_are_not_features() -> None:
    class SequenceFirst(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.mix, self.fc = nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 5)

        def forward(self, x: Tensor) -> Tensor:
            x = self.mix(self.embed(x).transpose(0, 1))
            return self.fc(x.mean(0))  # type: ignore[no-any-return]

    assert [cut.name for cut in legal_cuts(SequenceFirst(), torch.randn(2, 6, 4))] == ["embed"]


def _cut(name: str, share: float, position: int) -> Cut:
    return Cut(name, (name,), (1,), share, position, position)


def test_even_shares() -> None:
    cuts = [_cut(str(i), share, i) for i, share in enumerate([0.05, 0.3, 0.35, 0.6, 0.9])]
    assert [cut.share for cut in even_cuts(cuts, 3)] == [0.35, 0.6]
    assert [cut.share for cut in even_cuts(cuts, 2)] == [0.6]
    assert [cut.share for cut in even_cuts(cuts, 6)] == [0.05, 0.3, 0.35, 0.6, 0.9]
    with pytest.raises(RequestError, match=r"at 5 places of different cost; choose from 2 to 6"):
        even_cuts(cuts, 7)


def test_blocks_go_before_layers_and_modules_before_steps() -> None:
    cuts = [_cut("a.conv", 0.5, 1), _cut("a", 0.5, 2), _cut("b.norm", 0.5, 3), _cut(":add", 0.52, 4), _cut("b", 0.9, 5)]
    assert [cut.name for cut in even_cuts(cuts, 2, blocks={"a"})] == ["a"]
    assert [cut.name for cut in even_cuts(cuts[:2] + cuts[2:3], 2)] == ["a"]
    assert [cut.name for cut in even_cuts(cuts, 3)] == ["a", "b"]
    assert [cut.name for cut in even_cuts(cuts, 4)] == ["a", ":add", "b"]


@pytest.mark.parametrize("mask", [None, torch.zeros(5, 5)])
def test_attention_is_counted(mask: Tensor | None) -> None:
    query = torch.randn(1, 2, 5, 8)
    with torch.no_grad(), flop_counter() as counter:
        nn.functional.scaled_dot_product_attention(query, query, query, attn_mask=mask)
    assert counter.get_total_flops() // 2 == 2 * (2 * 5 * 5 * 8)


def test_transformer_layers_of_torch_are_counted_too() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    with torch.no_grad(), flop_counter() as counter:
        layer(torch.randn(1, 5, 8))
    assert counter.get_total_flops() // 2 == 5 * (4 * 8 * 8 + 2 * 8 * 16) + 2 * 5 * 5 * 8
    assert torch.backends.mha.get_fastpath_enabled()
