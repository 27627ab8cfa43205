"""Two changes of form that let ONNX Runtime keep its blocked memory layout; the numbers stay the same.

Its fast convolutions work on blocks of channels, and it stays in that layout from one convolution to the next, addition
and ReLU included, as long as both sides of every addition come from a convolution or a pooling. One side that does not
sends the whole rest of a stage back to the plain layout, with a conversion before and after each convolution. On
ResNet-32 that costs 6-12 % of a stage.
"""

from collections.abc import Iterable

import onnx
import torch
from torch import nn

from elfnet.models.cifar_resnet import BasicBlock, OptionAShortcut


def shortcuts_as_convolutions(network: nn.Module) -> None:
    """Replace subsampling and zero-padding by a 1x1 convolution with weights 0 and 1, in place.

    It multiplies, so it costs 0.5 % of a group; what an exit costs is counted on the network as it was trained.
    """
    for block in network.modules():
        if isinstance(block, BasicBlock) and isinstance(block.shortcut, OptionAShortcut):
            convolution = _as_convolution(block.shortcut, block.conv1.in_channels, block.conv2.out_channels)
            block.shortcut = convolution  # type: ignore[assignment]


def _as_convolution(shortcut: OptionAShortcut, channels_in: int, channels_out: int) -> nn.Conv2d:
    convolution = nn.Conv2d(channels_in, channels_out, 1, stride=shortcut.stride, bias=False)
    channel = torch.arange(channels_in)
    with torch.no_grad():
        convolution.weight.zero_()
        convolution.weight[shortcut.before + channel, channel] = 1.0
    return convolution


def pools_at_the_entrance(nodes: Iterable[onnx.NodeProto], maps: Iterable[str]) -> list[onnx.NodeProto]:
    """Between each of `maps` that an addition reads and its readers: a 1x1 average pooling, which changes nothing.

    Args:
        nodes: of the graph; their inputs are renamed in place.
        maps: inputs of the graph with four dimensions.

    Returns:
        The new nodes, to be put before the others.
    """
    nodes = list(nodes)
    pools = []
    for name in maps:
        if not any(node.op_type == "Add" and name in node.input for node in nodes):
            continue
        pooled = f"{name}_pooled"
        pools.append(onnx.helper.make_node("AveragePool", [name], [pooled], name=pooled, kernel_shape=[1, 1]))
        for node in nodes:
            node.input[:] = [pooled if read == name else read for read in node.input]
    return pools
