"""Assemble the graphs of all stages to one ONNX graph that stops early.

There are three paths, and `If` nodes choose one. If no image of the call may leave early, the stages are one chain
without heads, as in the plain network: every boundary between two graphs costs conversions of the memory layout. One
image and batches have nodes of their own. The file holds the weights once; see `stage_nodes`.
"""

# Shapes: N images of a call, B images that have not left, E exits, C classes, K channels, H height, W width

from collections.abc import Sequence
from typing import Literal

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from elfnet.calibrate.point_family import Family
from elfnet.errors import RequestError
from elfnet.exits.policy import NEVER
from elfnet.export.exit_nodes import BatchNodes, OneImageNodes
from elfnet.export.graph_writer import GraphWriter
from elfnet.export.policy_nodes import PolicyNodes
from elfnet.export.stage_nodes import StageGraph, computed_again, copied, in_a_row, read_stage
from elfnet.inference.bundle.one_file import NORMALISE
from elfnet.inference.bundle.stage_graph import FEATURES
from elfnet.inference.graph_inputs import IMAGES, ROWS, PointInputs
from elfnet.inference.preprocess import Preprocess

ImageInput = Literal["uint8", "float32", "features"]
MAX_EXITS = 30
"""Protobuf allows 100 nested messages, and each exit nests three."""
CHEAP_STEM = 0.01
"""A first stage of at most this cost is computed again by the second."""
MAX_ONE_IMAGE_BYTES = 2**25
"""Calls with one image have nodes of their own in networks whose weights are at most this large. Weights are in memory
once per path, and in a large network the nodes between stages take no time worth mentioning."""
ONE = "one/"
"""Beginning of the names of these nodes."""
OUTPUTS = {
    "class": TensorProto.INT64,
    "confidence": TensorProto.FLOAT,
    "probabilities": TensorProto.FLOAT,
    "exit": TensorProto.INT64,
    "cost": TensorProto.FLOAT,
}


def assemble(
    graphs: Sequence[bytes],
    family: Family,
    *,
    image_input: ImageInput = "uint8",
    preprocess: Preprocess | None = None,
    default_point: str | None = None,
    abstain_below: float = 0.0,
) -> onnx.ModelProto:
    """Return one ONNX model that classifies with early exit.

    Inputs: `images` (or `features`), `thresholds` and `abstain_below`, and `confidence_scale`, `adjust_tau`, `combine`
    or `entropy` where the operating points differ in them. All but the images have one row, or one row per image.
    Outputs: `class`, -1 where the confidence is below `abstain_below`; `confidence`, `probabilities`, `exit` from 1,
    and `cost`. At a threshold of 1 or more no image stops; below 0 every image stops.

    Args:
        graphs: Graphs from `export_stages`, or quantised ones.
        family: The operating points.
        image_input: `uint8` for images (N, H, W, K) as in a file; `float32` for normalised images (N, K, H, W);
            `features` for feature rows (N, K).
        preprocess: The normalisation, for `uint8` and `features`.
        default_point: The operating point whose values are the defaults; None for required inputs without defaults.
        abstain_below: Default of the input of this name.

    Raises:
        RequestError: The network has more exits than a file can hold.
    """
    if len(graphs) > MAX_EXITS:
        raise RequestError(
            f"the network has {len(graphs)} exits, an ONNX file that stops early can have {MAX_EXITS}; "
            "train it with fewer exits, or name the run directory instead of a file"
        )
    stages = [read_stage(k, graph) for k, graph in enumerate(graphs)]
    first = onnx.ModelProto.FromString(graphs[0])
    inputs = PointInputs.of(family)
    main = GraphWriter("main")
    images = _normalise(main, image_input, preprocess, stages[0].features[0])
    policy = PolicyNodes(family, inputs, stages[0].logits.type.tensor_type.shape.dim[1].dim_value)
    _network(main, stages, policy)
    defaults = {} if default_point is None else inputs.values(family.point(default_point).policy, abstain_below)
    graph = helper.make_graph(
        main.nodes,
        "elfnet",
        [images, *(_input(name, width) for name, width in inputs.widths.items())],
        [_output(name, kind, policy.classes) for name, kind in OUTPUTS.items()],
        initializer=[*main.weights, *(numpy_helper.from_array(value, name) for name, value in defaults.items())],
        value_info=[value for value in main.values if value.name not in OUTPUTS],
    )
    model = helper.make_model(graph, ir_version=first.ir_version, opset_imports=_opsets(graphs))
    model.producer_name = "elfnet"
    onnx.checker.check_model(model, full_check=True)
    return model


def _network(main: GraphWriter, stages: Sequence[StageGraph], policy: PolicyNodes) -> None:
    """Write everything behind the normalised images."""
    main.weights += [tensor for stage in stages for tensor in stage.shared_weights]
    main.values += stages[0].features
    if len(stages) == 1:
        found = _full_depth(main, stages, policy)
    elif policy.always_combines:
        # The answer of the last exit needs every head.
        found = _with_exits(main, stages, policy)
    else:
        early, full = GraphWriter("early"), GraphWriter("full")
        lowest = main.add("ReduceMin", policy.deciding_thresholds(main), keepdims=0)
        may_leave = main.add("Less", lowest, main.constant(NEVER, np.float32))
        branches = ((early, _with_exits(early, stages, policy)), (full, _full_depth(full, stages, policy)))
        found = main.choose(may_leave, _found("main", policy.classes), *branches)
    probabilities, exit_number, cost = found
    main.add("Identity", exit_number, into="exit")
    main.add("Identity", cost, into="cost")
    policy.answer(main, probabilities)


def _found(where: str, classes: int) -> list[onnx.ValueInfoProto]:
    """Return what every path through the network gives."""
    return [
        helper.make_tensor_value_info(f"{where}/probabilities", TensorProto.DOUBLE, ["batch", classes]),
        helper.make_tensor_value_info(f"{where}/exit", TensorProto.INT64, ["batch"]),
        helper.make_tensor_value_info(f"{where}/cost", TensorProto.FLOAT, ["batch"]),
    ]


def _with_exits(graph: GraphWriter, stages: Sequence[StageGraph], policy: PolicyNodes) -> list[str]:
    """Write the stages with exits, and return the names of probabilities (N, C), exit (N,) and cost (N,)."""
    family = policy.family
    images = stages[0].features[0].name
    if family.cost[0] - family.head_cost[0] <= CHEAP_STEM:
        stages = computed_again(stages)
    if sum(tensor.ByteSize() for stage in stages for tensor in stage.shared_weights) > MAX_ONE_IMAGE_BYTES:
        return BatchNodes(stages, policy).write(graph)
    batch, one = GraphWriter("batch"), GraphWriter("one")
    size = graph.add("Shape", images, start=0, end=1)
    single = graph.add("Equal", size, graph.constant([1], np.int64))
    branches = (
        (one, OneImageNodes(copied(stages, ONE), policy).write(one)),
        (batch, BatchNodes(stages, policy).write(batch)),
    )
    return graph.choose(single, _found(graph.name, policy.classes), *branches)


def _full_depth(graph: GraphWriter, stages: Sequence[StageGraph], policy: PolicyNodes) -> list[str]:
    """Write the plain network, and return the names of probabilities (N, C), exit (N,) and cost (N,)."""
    chain, logits = in_a_row(stages)
    graph.place(chain)
    probabilities, _ = policy.probabilities(graph, len(stages) - 1, logits, None, None)
    batch = graph.add("Shape", logits, start=0, end=1)
    cost = policy.family.cost[-1] - sum(policy.family.head_cost[:-1])
    answers = (np.array([len(stages)], dtype=np.int64), np.array([cost], dtype=np.float32))
    constants = [graph.add("ConstantOfShape", batch, value=numpy_helper.from_array(value)) for value in answers]
    return [probabilities, *constants]


def _opsets(graphs: Sequence[bytes]) -> list[onnx.OperatorSetIdProto]:
    versions: dict[str, int] = {}
    for graph in graphs:
        for opset in onnx.ModelProto.FromString(graph).opset_import:
            versions[opset.domain] = max(opset.version, versions.get(opset.domain, 0))
    return [helper.make_opsetid(domain, version) for domain, version in versions.items() if domain in ("", "ai.onnx")]


def _input(name: str, width: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, [ROWS, width])


def _output(name: str, kind: int, classes: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, ["batch", classes] if name == "probabilities" else ["batch"])


def _normalise(
    main: GraphWriter, image_input: ImageInput, preprocess: Preprocess | None, features: onnx.ValueInfoProto
) -> onnx.ValueInfoProto:
    """Add the nodes before the first stage, and return the input that they read."""
    channels, height, width = (dim.dim_value for dim in features.type.tensor_type.shape.dim[1:])
    before = GraphWriter(NORMALISE.rstrip("/"))
    if image_input == "float32":
        main.nodes.append(helper.make_node("Identity", [IMAGES], [features.name], name=f"{NORMALISE}Identity"))
        return helper.make_tensor_value_info(IMAGES, TensorProto.FLOAT, ["batch", channels, height, width])
    assert preprocess is not None
    if image_input == "features":
        centred = before.add("Sub", FEATURES, before.constant(preprocess.mean, np.float32))
        divided = before.add("Div", centred, before.constant(preprocess.std, np.float32))
        shape = before.constant([-1, channels, height, width], np.int64)
        before.add("Reshape", divided, shape, into=features.name)
        value = helper.make_tensor_value_info(FEATURES, TensorProto.FLOAT, ["batch", channels * height * width])
    else:
        # The order of `Preprocess.normalise`, so that every value is the same in its last bit.
        pixels = before.add("Cast", IMAGES, to=TensorProto.FLOAT)
        scaled = before.add("Div", pixels, before.constant(255, np.float32))
        centred = before.add("Sub", scaled, before.constant(preprocess.mean, np.float32))
        divided = before.add("Div", centred, before.constant(preprocess.std, np.float32))
        before.add("Transpose", divided, into=features.name, perm=[0, 3, 1, 2])
        value = helper.make_tensor_value_info(IMAGES, TensorProto.UINT8, ["batch", height, width, channels])
    main.nodes += before.nodes
    main.weights += before.weights
    return value
