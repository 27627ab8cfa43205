"""The changes of form change no number."""

import copy

import pytest
import torch
from onnx import helper
from torch import nn

from elfnet.export.onnx_graph import pools_at_the_entrance, shortcuts_as_convolutions
from elfnet.models.cifar_resnet import OptionAShortcut, block_group


@pytest.mark.parametrize(("channels_in", "channels_out"), [(16, 32), (4, 10), (3, 8)])
def test_shortcut_as_convolution(channels_in: int, channels_out: int) -> None:
    group = block_group(2, channels_in, channels_out).eval()
    changed = copy.deepcopy(group)
    shortcuts_as_convolutions(changed)
    assert not any(isinstance(module, OptionAShortcut) for module in changed.modules())
    assert isinstance(changed[0].shortcut, nn.Conv2d)  # type: ignore[index]
    features = torch.randn(2, channels_in, 9, 8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = group[0].shortcut(features)  # type: ignore[index]
        assert torch.equal(changed[0].shortcut(features), expected)  # type: ignore[index]
        assert torch.equal(changed(features), group(features))


def test_pools_only_where_an_addition_reads() -> None:
    nodes = [
        helper.make_node("Conv", ["a", "w"], ["x"]),
        helper.make_node("Add", ["x", "a"], ["y"]),
        helper.make_node("Conv", ["b", "w"], ["z"]),
    ]
    pools = pools_at_the_entrance(nodes, ["a", "b"])
    assert [(pool.op_type, list(pool.input), list(pool.output)) for pool in pools] == [
        ("AveragePool", ["a"], ["a_pooled"])
    ]
    assert [list(node.input) for node in nodes] == [["a_pooled", "w"], ["x", "a_pooled"], ["b", "w"]]
