"""One stage, cut out of the graph in which all stages stand side by side."""

from collections.abc import Iterable, Sequence

import onnx

from elfnet.deploy.graph_names import LOGITS, in_stage
from elfnet.deploy.graph_parts import PLACE, join_parts
from elfnet.deploy.onnx_layout import pools_at_the_entrance


def cut(together: onnx.ModelProto, k: int, inputs: Sequence[str], passed_on: Sequence[str]) -> bytes:
    """The model of stage k and its head, with nothing in it that tells of the exporting machine.

    The exporter's notes for debugging (stack traces with paths, module names) are left behind.

    Args:
        together: all stages; their inputs and outputs are named by `in_stage`.
        k: which stage, from 0.
        inputs: names of the stage's inputs.
        passed_on: names of the features that it gives; none for the last stage, which has no use without its head.
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
    """A stage's model that somebody changed, brought into the form of `cut`: the stage first, its head behind."""
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
    """Copies of the nodes that lead to these values, in order, without metadata."""
    needed = set(outputs)
    nodes = []
    # A graph lists its nodes in an order in which they can be computed.
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
