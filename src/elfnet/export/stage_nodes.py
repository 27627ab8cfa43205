"""The nodes and weights of stages as parts of a larger graph: one by one with their heads, or all in a row.

Weights with more than one dimension are initialisers of the main graph, flat, and every graph that uses one reads it
through a `Reshape`. So two branches of an `If` share what the file holds once. ONNX Runtime computes the `Reshape` when
it opens the file, and each branch then has constants of its own: it optimises the layout of no others.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import onnx
from onnx import helper, numpy_helper

from elfnet.export.onnx_graph import is_entrance_pool
from elfnet.inference.bundle.stage_graph import in_stage

FULL_DEPTH, AGAIN = "full/", "again/"
"""Beginnings of the names of nodes and values in copies: the row of all stages, and a stage that is computed again."""


@dataclass(eq=False)
class Part:
    """Nodes of a stage or a head, and the initialisers and annotated values of the graph that holds them."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: list[onnx.TensorProto] = field(default_factory=list)
    values: list[onnx.ValueInfoProto] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class StageGraph:
    """A stage and its head, with names that are unique in the assembled graph.

    Attributes:
        features: What the stage reads.
        kept: What the next stage needs of it, for the images that stay; empty for the last stage.
        logits: Output of the head.
        stage: The stage; the last one has its head in it.
        head: The head, which reads the output of the stage.
        shared_weights: Initialisers of the main graph.
    """

    features: list[onnx.ValueInfoProto]
    kept: list[onnx.ValueInfoProto]
    logits: onnx.ValueInfoProto
    stage: Part
    head: Part
    shared_weights: list[onnx.TensorProto]


def read_stage(k: int, content: bytes) -> StageGraph:
    """Read the graph of stage k, which `export_stages` wrote, and rename everything in it."""
    graph = onnx.ModelProto.FromString(content).graph
    *passed_on, logits = graph.output
    needed = {value.name for value in passed_on or [logits]}
    in_the_stage = set()
    for position, node in reversed(list(enumerate(graph.node))):
        if not needed.isdisjoint(node.output):
            needed.update(node.input)
            in_the_stage.add(position)
    stage, head, shared = Part(), Part(), []
    for tensor in graph.initializer:
        of_stage = tensor.name in needed
        part, name = (stage if of_stage else head), in_stage(k, tensor.name)
        if len(tensor.dims) < 2:
            part.weights.append(_renamed_tensor(tensor, name))
            continue
        flat, shape = f"{name}/flat", f"{name}/shape"
        shared.append(_renamed_tensor(tensor, flat, [int(np.prod(tensor.dims))]))
        part.weights.append(numpy_helper.from_array(np.array(tensor.dims, dtype=np.int64), shape))
        own = in_stage(k, f"{'' if of_stage else 'head/'}{tensor.name}")
        part.nodes.append(helper.make_node("Reshape", [flat, shape], [name], name=own))
    for position, node in enumerate(graph.node):
        of_stage = position in in_the_stage
        own = in_stage(k, f"{'' if of_stage else 'head/'}{position}/{node.name}")
        names = {name: in_stage(k, name) for name in (*node.input, *node.output) if name}
        (stage if of_stage else head).nodes.append(_renamed_node(node, own, names))
    features, kept = ([_value_of_stage(k, value) for value in values] for values in (graph.input, passed_on))
    stage.values, head.values = kept or [_value_of_stage(k, logits)], [_value_of_stage(k, logits)]
    return StageGraph(features, kept, head.values[0], stage, head, shared)


def in_a_row(stages: Sequence[StageGraph]) -> tuple[Part, str]:
    """Join all stages and the last head to one chain, and return it with the name of its logits.

    It reads the features of the first stage and the shared weights. Everything else in it has a name of its own, unless
    there is one stage only.
    """
    if len(stages) == 1:
        return stages[0].stage, stages[0].logits.name
    chain, names = Part(), dict[str, str]()
    for before, stage in zip([None, *stages], stages, strict=False):
        if before is not None:
            names |= {own.name: names[given.name] for own, given in zip(stage.features, before.kept, strict=True)}
        copy = _copy(_without_entrance_pools(stage.stage), FULL_DEPTH, names)
        chain.nodes += copy.nodes
        chain.weights += copy.weights
    return chain, names[stages[-1].logits.name]


def computed_again(stages: Sequence[StageGraph]) -> list[StageGraph]:
    """Let the second stage compute the first again, rather than read its output.

    The images stay, which are smaller than the first feature maps, and the first stage is run only with its head. For
    a first stage of one convolution this takes less time than to convert, copy and convert again its feature maps.
    """
    first, second, *others = stages
    names = {given.name: own.name for own, given in zip(second.features, first.kept, strict=True)}
    names |= {value.name: AGAIN + value.name for value in first.features}
    again, rest = _copy(first.stage, AGAIN, names), _without_entrance_pools(second.stage)
    images = []
    for value in first.features:
        images.append(onnx.ValueInfoProto())
        images[-1].CopyFrom(value)
        images[-1].name = names[value.name]
        images[-1].type.tensor_type.shape.dim[0].CopyFrom(second.features[0].type.tensor_type.shape.dim[0])
    return [
        replace(first, kept=first.features, stage=Part(), head=_joined(first.stage, first.head)),
        replace(second, features=images, stage=_joined(again, Part(values=second.features), rest)),
        *others,
    ]


def copied(stages: Sequence[StageGraph], prefix: str) -> list[StageGraph]:
    """Copy stages and heads under other names. Each stage of the copy reads the output of the one before directly."""
    names, copies = dict[str, str](), list[StageGraph]()
    for before, stage in zip([None, *stages], stages, strict=False):
        if before is not None:
            names |= {
                own.name: names.get(given.name, given.name)
                for own, given in zip(stage.features, before.kept, strict=True)
            }
        parts = [_copy(part, prefix, names) for part in (stage.stage, stage.head)]
        logits = onnx.ValueInfoProto(name=names[stage.logits.name])
        copies.append(replace(stage, stage=parts[0], head=parts[1], logits=logits))
    return copies


def _joined(*parts: Part) -> Part:
    return Part(
        nodes=[node for part in parts for node in part.nodes],
        weights=[tensor for part in parts for tensor in part.weights],
        values=[value for part in parts for value in part.values],
    )


def _without_entrance_pools(part: Part) -> Part:
    names: dict[str, str] = {}
    nodes = []
    for node in part.nodes:
        if is_entrance_pool(node):
            names[node.output[0]] = node.input[0]
        else:
            nodes.append(_renamed_node(node, node.name, names))
    return replace(part, nodes=nodes)


def _copy(part: Part, prefix: str, names: dict[str, str]) -> Part:
    """Copy a part under other names: those of `names`, to which all others of its nodes and weights are added."""
    for name in (*(tensor.name for tensor in part.weights), *(name for node in part.nodes for name in node.output)):
        names.setdefault(name, prefix + name)
    return Part(
        nodes=[_renamed_node(node, prefix + node.name, names) for node in part.nodes],
        weights=[_renamed_tensor(tensor, names[tensor.name]) for tensor in part.weights],
    )


def _renamed_node(node: onnx.NodeProto, name: str, names: dict[str, str]) -> onnx.NodeProto:
    own = onnx.NodeProto()
    own.CopyFrom(node)
    own.name = name
    own.input[:] = [names.get(read, read) for read in node.input]
    own.output[:] = [names.get(written, written) for written in node.output]
    return own


def _renamed_tensor(tensor: onnx.TensorProto, name: str, shape: Sequence[int] | None = None) -> onnx.TensorProto:
    own = onnx.TensorProto()
    own.CopyFrom(tensor)
    own.name = name
    if shape is not None:
        own.dims[:] = shape
    return own


def _value_of_stage(k: int, value: onnx.ValueInfoProto) -> onnx.ValueInfoProto:
    own = onnx.ValueInfoProto()
    own.CopyFrom(value)
    own.name = in_stage(k, value.name)
    own.type.tensor_type.shape.dim[0].dim_param = f"rows_{k}" if k else "batch"
    return own
