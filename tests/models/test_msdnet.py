"""MSDNet: counted by hand, against itself without packing, and against a forward pass written from its names."""

from collections.abc import Sequence

import numpy as np
import onnxruntime  # type: ignore[import-untyped]
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from elfnet.errors import RequestError
from elfnet.export.onnx import export_stages
from elfnet.inference.backends.torch import TorchBackend
from elfnet.models.build import build_network
from elfnet.models.flops import count_cost
from elfnet.models.heads import exit_head
from elfnet.models.msdnet import Block, PackedBackbone, Packing, msdnet
from elfnet.models.staged import StagedNetwork

State = dict[str, Tensor]
Count = tuple[int, int, int]
"""A convolution: output pixels (input pixels, if 1x1), weights, output channels."""


def _network(seed: int = 0, *, exits: bool = True) -> StagedNetwork:
    """With batch-norm statistics as after some training, since mean 0 and variance 1 would hide errors."""
    torch.manual_seed(seed)
    network = build_network("msdnet", classes=5, exits=exits).eval()
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            for tensor in (module.weight, module.bias, module.running_mean, module.running_var):
                assert tensor is not None
                tensor.data.uniform_(0.2, 0.8)
    return network


@pytest.fixture(scope="module")
def network() -> StagedNetwork:
    """Read only."""
    return _network()


def _images(count: int, side: int = 32) -> Tensor:
    return torch.randn(count, 3, side, side, generator=torch.Generator().manual_seed(1))


# A layer by hand, at 32 x 32 pixels: growth 6, 12, 24 at 1024, 256, 64 pixels; c channels of the finest scale come in.


def _middle_from_both(c: int) -> list[Count]:
    return [(1024, 6 * c, 6), (256, 6 * 9 * 6, 6), (256, 12 * 2 * c, 12), (256, 12 * 9 * 6, 6)]


def _coarsest_from_both(c: int) -> list[Count]:
    return [(256, 24 * 2 * c, 24), (64, 24 * 9 * 12, 12), (64, 48 * 4 * c, 48), (64, 48 * 9 * 12, 12)]


def _three_scales(c: int) -> list[Count]:
    return [(1024, 6 * c, 6), (1024, 6 * 9 * 6, 6), *_middle_from_both(c), *_coarsest_from_both(c)]


def _two_scales(c: int) -> list[Count]:
    return [(256, 24 * 2 * c, 24), (256, 24 * 9 * 12, 12), *_coarsest_from_both(c)]


def _one_scale(c: int) -> list[Count]:
    return [(64, 96 * 4 * c, 96), (64, 96 * 9 * 24, 24)]


def _classifier(c: int) -> list[Count]:
    return [(16, 9 * 4 * c * 128, 128), (4, 9 * 128 * 128, 128)]


FIRST: list[Count] = [(1024, 27 * 16, 16), (256, 9 * 16 * 32, 32), (64, 9 * 32 * 64, 64)]
# Layer 7 is the last to read the finest scale, layer 13 the middle one; then channels are halved, 58 to 29, 65 to 32.
LAYER_7 = [*_middle_from_both(52), *_coarsest_from_both(52), (256, 116 * 58, 58), (64, 232 * 116, 116)]
LAYER_13 = [*_coarsest_from_both(59), (64, 260 * 128, 128)]
STAGES = (
    [*FIRST, *_three_scales(16), *_three_scales(22), *_three_scales(28), *_three_scales(34)],
    [*_three_scales(40), *_three_scales(46)],
    [*LAYER_7, *_two_scales(29)],
    [*_two_scales(35), *_two_scales(41)],
    [*_two_scales(47), *_two_scales(53)],
    [*LAYER_13, *_one_scale(32)],
    [*_one_scale(38), *_one_scale(44), *_classifier(50)],
)
EARLY_EXITS = tuple(_classifier(c) for c in (40, 52, 35, 47, 59, 38))


def _multiply_adds(convolutions: Sequence[Count]) -> int:
    return sum(pixels * weights for pixels, weights, _ in convolutions)


def _parameters(convolutions: Sequence[Count]) -> int:
    return sum(weights + 2 * channels for _, weights, channels in convolutions)


def test_multiply_adds_and_parameters_as_counted_by_hand() -> None:
    network = build_network("msdnet", classes=10)
    cost = count_cost(network, (3, 32, 32))
    assert cost.stages == tuple(map(_multiply_adds, STAGES))
    assert cost.heads == (*(_multiply_adds(early) + 1280 for early in EARLY_EXITS), 1280)
    assert [sum(p.numel() for p in stage.parameters()) for stage in network.stages] == [*map(_parameters, STAGES)]
    parameters = sum(map(_parameters, (*STAGES, *EARLY_EXITS))) + 7 * 1290
    assert sum(p.numel() for p in network.parameters()) == parameters == 2_986_690
    # Beside ResNet-32: 68.9 M without exits and 80.1 M with its four.
    assert (cost.to_exit[0], cost.plain, cost.to_exit[-1]) == (14_955_776, 51_880_192, 75_407_104)


def _unpacked_logits(network: StagedNetwork, images: Tensor) -> Tensor:
    """The same layers and heads, with lists of maps passed between blocks."""
    maps: Tensor | list[Tensor] = images
    logits_E = []
    for stage, head in network.pairs():
        (block,) = stage.children()
        assert isinstance(block, Block)
        maps = block.layers(maps)
        coarsest = maps[-1] if block.classifier is None else block.classifier(maps[-1])
        convolutions = dict(head.named_modules()).get("trunk.convolutions", nn.Identity())
        logits_E.append(head.get_submodule("classifier")(convolutions(coarsest).mean(dim=(2, 3))))
    return torch.stack(logits_E)


@pytest.mark.parametrize("side", [32, 21])
def test_packing_changes_no_bit(network: StagedNetwork, side: int) -> None:
    images = _images(3, side).contiguous(memory_format=torch.channels_last)
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    with torch.no_grad():
        assert torch.equal(network.logits(images), _unpacked_logits(network, images))


def _convolution(state: State, x: Tensor, name: str, index: int, stride: int = 1) -> Tensor:
    """Convolution `index` of a sequence, the batch norm after it, ReLU."""
    weight = state[f"{name}.{index}.weight"]
    x = functional.conv2d(x, weight, stride=stride, padding=weight.shape[2] // 2)
    mean, variance, scale, bias = (
        state[f"{name}.{index + 1}.{part}"].reshape(1, -1, 1, 1)
        for part in ("running_mean", "running_var", "weight", "bias")
    )
    return ((x - mean) / (variance + 1e-5).sqrt() * scale + bias).relu()


def _bottleneck(state: State, x: Tensor, name: str, stride: int = 1) -> Tensor:
    return _convolution(state, _convolution(state, x, name, 0), name, 3, stride)


def _named_forward(state: State, images: Tensor) -> Tensor:
    """As the paper's figure 2: by scale number, 0 the finest, with the thirds written out."""
    x, maps, logits_E = images, dict[int, Tensor](), []
    for scale in range(3):
        maps[scale] = x = _convolution(state, x, f"stages.0.block1.layers.0.scales.{scale}", 0, 2 if scale else 1)
    number = 0
    for block in range(7):
        layers = f"stages.{block}.block{block + 1}.layers"
        index = 0 if block else 1
        for _ in range(2 if block else 4):
            number += 1
            finest = 0 if number <= 6 else 1 if number <= 12 else 2
            after = {}
            for place, scale in enumerate(range(finest, 3)):
                name, parts = f"{layers}.{index}.scales.{place}", [maps[scale]]
                if scale - 1 in maps:
                    parts.append(_bottleneck(state, maps[scale - 1], f"{name}.finer", 2))
                parts.append(_bottleneck(state, maps[scale], f"{name}.here"))
                after[scale] = torch.cat(parts, dim=1)
            maps, index = after, index + 1
            if number in (7, 13):
                for place, scale in enumerate(maps):
                    maps[scale] = _convolution(state, maps[scale], f"{layers}.{index}.scales.{place}", 0)
                index += 1
        trunk = f"heads.{block}.trunk.convolutions" if block < 6 else "stages.6.block7.classifier"
        pooled = _convolution(state, _convolution(state, maps[2], trunk, 0, 2), trunk, 3, 2).mean(dim=(2, 3))
        weight, bias = (state[f"heads.{block}.classifier.{part}"] for part in ("weight", "bias"))
        logits_E.append(pooled @ weight.T + bias)
    return torch.stack(logits_E)


@pytest.mark.parametrize("side", [32, 13])
def test_equals_the_network_written_out(network: StagedNetwork, side: int) -> None:
    with torch.no_grad():
        expected_EBC = _named_forward(network.state_dict(), _images(2, side))
        found_EBC = network.logits(_images(2, side))
    assert torch.allclose(found_EBC, expected_EBC, rtol=1e-4, atol=1e-4 * float(expected_EBC.abs().max()))


def test_scales_are_given_up_at_thirds() -> None:
    cut = msdnet(1)
    assert isinstance(cut, PackedBackbone)
    expected = [(40, 80, 160), (52, 104, 208), (70, 140), (94, 188), (118, 236), (152,)]
    assert [packing.channels for packing in cut.packings] == expected
    assert cut.channels == [160, 208, 140, 188, 236, 152, 128]


def test_number_of_exits_follows_from_the_blocks() -> None:
    """Six layers, so the first third ends inside the first block: 16, 22, 28, (34) 17, 23 channels of the finest."""
    cut = msdnet(3, blocks=2)
    assert isinstance(cut, PackedBackbone)
    assert [packing.channels for packing in cut.packings] == [(2 * 23, 4 * 23)]
    assert nn.Sequential(*cut.stages).eval()(_images(2)).shape == (2, 128, 2, 2)


def test_rows_that_stay_go_on_as_if_alone(network: StagedNetwork) -> None:
    images = _images(4)
    with torch.no_grad():
        expected_EBC = network.logits(images).numpy()
    backend, here = TorchBackend(network), np.arange(4)
    features = backend.start(images.numpy())
    stays = {0: np.array([3, 1]), 4: np.array([1])}
    for k in range(backend.exits):
        features, logits_BC = backend.run(k, features)
        assert np.allclose(logits_BC, expected_EBC[k, here], rtol=1e-4, atol=1e-4 * np.abs(expected_EBC).max())
        if k in stays:
            features, here = backend.keep(features, stays[k]), here[stays[k]]
    assert here.tolist() == [1]


@pytest.mark.parametrize("side", [1, 2, 7])
def test_runs_on_images_of_any_side(network: StagedNetwork, side: int) -> None:
    with torch.no_grad():
        assert network.logits(_images(2, side)).isfinite().all()


def test_images_that_are_not_square_are_refused(network: StagedNetwork) -> None:
    with pytest.raises(RequestError, match=r"images of 32 x 24 pixels are not square.*model\.backbone"):
        network.logits(torch.zeros(1, 3, 32, 24))


@pytest.mark.slow
def test_settings_change_the_early_exits_and_not_the_backbone() -> None:
    shape = (3, 32, 32)
    own = count_cost(build_network("msdnet", classes=10), shape)
    written = count_cost(build_network("msdnet", classes=10, exit_head="conv", head_filters=128), shape)
    narrow = count_cost(build_network("msdnet", classes=10, head_filters=32), shape)
    wide = count_cost(build_network("msdnet", classes=10, head_stride=1), shape)
    separable = count_cost(build_network("msdnet", classes=10, exit_head="separable"), shape)
    bare = count_cost(build_network("msdnet", classes=10, exit_head="none"), shape)
    assert written == own
    assert narrow.heads[0] == 16 * 9 * 160 * 32 + 4 * 9 * 32 * 32 + 320
    assert wide.heads[0] == 64 * 9 * (160 + 128) * 128 + 1280
    assert separable.heads[0] == 16 * (9 + 128) * 160 + 4 * (9 + 128) * 128 + 1280
    assert bare.heads[0] == 160 * 10
    assert all(cost.stages == own.stages and cost.heads[-1] == 1280 for cost in (narrow, wide, separable, bare))


def test_cosines_at_every_exit() -> None:
    network = build_network("msdnet", classes=5, image_channels=1, head="cosine").eval()
    with torch.no_grad():
        logits_EBC = network.logits(_images(6, 8)[:, :1])
    assert logits_EBC.shape == (7, 6, 5)
    assert 0 < float(logits_EBC.abs().max()) <= 1 + 1e-5


def test_plain_network_has_the_last_classifier_only() -> None:
    plain = build_network("msdnet", classes=10, exits=False)
    cost = count_cost(plain, (3, 32, 32))
    assert (plain.exits, cost.plain, cost.to_exit) == (1, 51_880_192, (51_880_192,))


def test_weights_start_as_published() -> None:
    torch.manual_seed(0)
    network = build_network("msdnet", classes=10)
    last = network.get_parameter("stages.6.block7.classifier.0.weight").detach()
    assert last.shape == (128, 200, 3, 3)
    assert float(last.var()) == pytest.approx(2 / (9 * 128), rel=0.02)
    assert all(bool((network.get_parameter(f"heads.{k}.classifier.bias") == 0).all()) for k in range(7))


@pytest.mark.slow
def test_exported_stages_give_the_same_logits(network: StagedNetwork) -> None:
    images = _images(3)
    with torch.no_grad():
        expected_EBC = network.logits(images).numpy()
    sessions = [onnxruntime.InferenceSession(graph) for graph in export_stages(network, (3, 32, 32))]
    assert [len(session.get_inputs()) for session in sessions] == [1] * 7
    for count in (1, 3):
        features = images[:count].numpy()
        for k, session in enumerate(sessions):
            outputs = session.run(None, {session.get_inputs()[0].name: features})
            named = dict(zip((o.name for o in session.get_outputs()), outputs, strict=True))
            tolerance = 1e-4 * float(np.abs(expected_EBC[k]).max())
            assert np.abs(named["logits"] - expected_EBC[k, :count]).max() <= tolerance
            features = named.get("next_features", features)


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
