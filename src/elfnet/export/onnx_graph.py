"""Edit ONNX graphs: cut one stage out of the graph of all stages, and rewrite operators for faster inference."""

from collections.abc import Iterable, Sequence

import onnx
import torch
from torch import nn

from elfnet.inference.bundle.stage_graph import LOGITS, PLACE, in_stage, join_parts
from elfnet.models.cifar_resnet import BasicBlock, OptionAShortcut


def shortcuts_as_convolutions(network: nn.Module) -> None:
    """Replace subsampling and zero-padding by a 1x1 convolution with weights 0 and 1, in place.

    The convolution adds 0.5 % of the multiply-adds of a group. Costs are counted on the network as it was trained.
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
    """Insert a 1x1 average pooling, which changes no value, after each of `maps` that an addition reads.

    Args:
        nodes: Nodes of the graph; their inputs are renamed in place.
        maps: Inputs of the graph with four dimensions.

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


def is_entrance_pool(node: onnx.NodeProto) -> bool:
    """Return whether a node is a pooling that changes no value, as `pools_at_the_entrance` inserts."""
    attributes = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
    return node.op_type == "AveragePool" and attributes == {"kernel_shape": [1, 1]}


def cut(together: onnx.ModelProto, k: int, inputs: Sequence[str], passed_on: Sequence[str]) -> bytes:
    """Return the model of stage k and its head.

    The exporter's debug metadata (stack traces with paths, module names) is dropped.

    Args:
        together: The model of all stages; its inputs and outputs are named by `in_stage`.
        k: Index of the stage, from 0.
        inputs: Names of the stage's inputs.
        passed_on: Names of its output features; empty for the last stage.
    """
    assert not together.functions, "functions are not cut"
    renamed = {in_stage(k, name): name for name in (*inputs, *passed_on, LOGITS)}
    values = {value.name: value for value in (*together.graph.input, *together.graph.output)}
    stage_nodes = _nodes_before(together.graph, [in_stage(k, name) for name in passed_on])
    all_nodes = _nodes_before(together.graph, [in_stage(k, LOGITS)])
    if not passed_on:
        stage_nodes = all_nodes
    known = {output for node in stage_nodes for output in node.output}
    head_nodes = [node for node in all_nodes if known.isdisjoint(node.output)]
    for node in (*stage_nodes, *head_nodes):
        node.input[:] = [renamed.get(name, name) for name in node.input]
        node.output[:] = [renamed.get(name, name) for name in node.output]
    shapes = {name: _any_batch(name, values[in_stage(k, name)]) for name in renamed.values()}
    maps = [name for name in inputs if len(shapes[name].type.tensor_type.shape.dim) == 4]
    stage_nodes = pools_at_the_entrance(stage_nodes, maps) + stage_nodes

    stage_weights = _weights(together.graph, stage_nodes, without=set())
    stage = onnx.GraphProto(name=f"stage_{k}", node=stage_nodes, initializer=stage_weights)
    stage.input.extend(shapes[name] for name in inputs)
    stage.output.extend(shapes[name] for name in passed_on)
    head_weights = _weights(together.graph, head_nodes, without={tensor.name for tensor in stage_weights})
    head = onnx.GraphProto(node=head_nodes, initializer=head_weights, output=[shapes[LOGITS]])
    return _checked_model(together, stage, head)


def cut_again(model: onnx.ModelProto) -> bytes:
    """Bring a modified model of a stage into the form that `cut` returns: the stage first, then its head."""
    graph = model.graph
    passed_on = [value for value in graph.output if value.name != LOGITS]
    all_nodes = _nodes_before(graph, [value.name for value in graph.output])
    stage_nodes = _nodes_before(graph, [value.name for value in passed_on]) if passed_on else all_nodes
    known = {output for node in stage_nodes for output in node.output}
    head_nodes = [node for node in all_nodes if known.isdisjoint(node.output)]
    stage_weights = _weights(graph, stage_nodes, without=set())
    stage = onnx.GraphProto(name=graph.name, node=stage_nodes, initializer=stage_weights, input=graph.input)
    stage.output.extend(passed_on)
    head_weights = _weights(graph, head_nodes, without={tensor.name for tensor in stage_weights})
    head = onnx.GraphProto(node=head_nodes, initializer=head_weights)
    head.output.extend(value for value in graph.output if value.name == LOGITS)
    return _checked_model(model, stage, head)


def _nodes_before(graph: onnx.GraphProto, outputs: Iterable[str]) -> list[onnx.NodeProto]:
    """Return copies of the nodes that these values depend on, in order, without metadata."""
    needed = set(outputs)
    nodes = []
    # The nodes of a graph are sorted topologically.
    for node in reversed(graph.node):
        if needed.isdisjoint(node.output):
            continue
        assert not any(attribute.HasField("g") for attribute in node.attribute), "a graph inside a node is not cut"
        needed.update(node.input)
        bare = onnx.NodeProto(op_type=node.op_type, domain=node.domain, name=node.name, attribute=node.attribute)
        bare.input.extend(node.input)
        bare.output.extend(node.output)
        nodes.append(bare)
    return nodes[::-1]


def _weights(graph: onnx.GraphProto, nodes: Iterable[onnx.NodeProto], *, without: set[str]) -> list[onnx.TensorProto]:
    read = {name for node in nodes for name in node.input} - without
    weights = []
    for tensor in graph.initializer:
        if tensor.name in read:
            bare = onnx.TensorProto()
            bare.CopyFrom(tensor)
            bare.ClearField("doc_string")
            bare.ClearField("metadata_props")
            weights.append(bare)
    return weights


def _any_batch(name: str, value: onnx.ValueInfoProto) -> onnx.ValueInfoProto:
    tensor = value.type.tensor_type
    fixed = [dimension.dim_value for dimension in tensor.shape.dim[1:]]
    return onnx.helper.make_tensor_value_info(name, tensor.elem_type, ["batch", *fixed])


def _checked_model(together: onnx.ModelProto, stage: onnx.GraphProto, head: onnx.GraphProto) -> bytes:
    header = onnx.ModelProto(
        ir_version=together.ir_version,
        opset_import=together.opset_import,
        producer_name=together.producer_name,
        producer_version=together.producer_version,
    )
    parts = (message.SerializeToString(deterministic=True) for message in (header, stage, head))
    model, place = join_parts(*parts)
    note = onnx.ModelProto(metadata_props=[onnx.StringStringEntryProto(key=PLACE, value=place)])
    model += bytes(note.SerializeToString(deterministic=True))
    onnx.checker.check_model(onnx.ModelProto.FromString(model), full_check=True)
    return model
