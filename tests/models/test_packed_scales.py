"""Packing maps of several scales into one row per example."""

import pytest
import torch
from torch import Tensor

from elfnet.models.heads import exit_head
from elfnet.models.msdnet import PackedBackbone, Packing


def _maps(channels: tuple[int, ...], side: int, *, batch: int = 3) -> list[Tensor]:
    generator = torch.Generator().manual_seed(side)
    maps = []
    for count in channels:
        maps.append(torch.randn(batch, count, side, side, generator=generator))
        side = (side + 1) // 2
    return maps


@pytest.mark.parametrize("channels", [(4,), (3, 5), (40, 80, 160), (7, 1, 2, 3)])
@pytest.mark.parametrize("side", [*range(1, 18), 32, 50])
def test_every_side_is_found_from_the_length(channels: tuple[int, ...], side: int) -> None:
    packing, maps = Packing(channels), _maps(channels, side, batch=1)
    packed_BL = packing.pack(maps)
    assert packed_BL.shape == (1, sum(features[0].numel() for features in maps))
    for found, expected in zip(packing.unpack(packed_BL), maps, strict=True):
        assert torch.equal(found, expected)
    assert torch.equal(packing.coarsest(packed_BL), maps[-1])


def test_row_holds_the_channels_of_a_pixel_together() -> None:
    fine, coarse = _maps((2, 3), 4)
    packed_BL = Packing((2, 3)).pack([fine, coarse])
    naive = [
        float(features[1, channel, y, x])
        for features in (fine, coarse)
        for y in range(features.shape[2])
        for x in range(features.shape[3])
        for channel in range(features.shape[1])
    ]
    assert packed_BL[1].tolist() == naive


def test_maps_keep_the_channels_last_layout_and_one_alone_is_not_copied() -> None:
    (alone,) = (features.contiguous(memory_format=torch.channels_last) for features in _maps((5,), 6))
    packing = Packing((5,))
    packed_BL = packing.pack([alone])
    assert packed_BL.data_ptr() == alone.data_ptr()
    assert packing.coarsest(packed_BL).is_contiguous(memory_format=torch.channels_last)


def test_kept_rows_are_kept_maps() -> None:
    packing, maps, stay = Packing((3, 5)), _maps((3, 5), 7), torch.tensor([2, 0])
    for found, expected in zip(packing.unpack(packing.pack(maps)[stay]), maps, strict=True):
        assert torch.equal(found, expected[stay])


def test_a_row_of_another_network_is_refused() -> None:
    with pytest.raises(AssertionError, match=r"a row of 97 numbers holds no square maps of \(1, 2\)"):
        Packing((1, 2)).unpack(torch.zeros(2, 97))


class _Changed(torch.nn.Module):
    packing = Packing((3, 5))

    def forward(self, packed_BL: Tensor) -> Tensor:
        fine, coarse = self.packing.unpack(packed_BL)
        return self.packing.pack([fine + 1, coarse * 2])


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiles_without_a_break_also_where_the_length_is_taken_for_a_variable(dynamic: bool) -> None:
    torch.compiler.reset()
    compiled = torch.compile(_Changed(), fullgraph=True, backend="eager", dynamic=dynamic)
    for side, batch in ((8, 3), (5, 4)):
        packed_BL = _Changed.packing.pack(_maps((3, 5), side, batch=batch))
        assert torch.equal(compiled(packed_BL), _Changed()(packed_BL))


def test_exported_rows_hold_channel_by_channel_for_any_batch() -> None:
    fine, coarse = _maps((3, 5), 5, batch=4)
    rows_BL = torch.cat([fine.flatten(1), coarse.flatten(1)], dim=1)
    any_batch = ({0: torch.export.Dim.DYNAMIC},)
    exported = torch.export.export(_Changed(), (rows_BL[:2],), dynamic_shapes=any_batch).module()
    assert torch.equal(exported(rows_BL), torch.cat([(fine + 1).flatten(1), (coarse * 2).flatten(1)], dim=1))


def test_heads_made_for_a_map_read_the_coarsest() -> None:
    torch.manual_seed(0)
    packing, maps = Packing((3, 5)), _maps((3, 5), 8)
    head = exit_head(5, 4, kind="cosine", filters=6, stride=2).eval()
    backbone = PackedBackbone([torch.nn.Identity(), torch.nn.Identity()], [5, 5], [packing])
    (reading,) = backbone.adapt_heads([head])
    assert torch.equal(reading(packing.pack(maps)), head(maps[-1].contiguous(memory_format=torch.channels_last)))
