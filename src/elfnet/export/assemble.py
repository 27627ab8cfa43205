"""Assemble the graphs of all stages to one ONNX graph that stops early.

Stage 1 is in the main graph. Behind each early exit stand two `If` nodes. The first runs the head if anybody may leave
there, and removes those who leave (`Compress`). The second holds the next stage, and runs it if anybody stays. Answers
come back as rows with their position, and `ScatterND` puts them in the order of the input.

Decisions are computed in float64 from the float32 logits, as `Policy.decide` does. Weights are initialisers of the
branch that uses them: ONNX Runtime optimises the layout of no others.
"""

# Shapes: N images of a call, B images that have not left, E exits, C classes, K channels, H height, W width

from collections.abc import Sequence
from typing import Literal

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from elfnet.calibrate.family import Family
from elfnet.errors import RequestError
from elfnet.export.exit_nodes import ExitNodes, GraphWriter, StageGraph
from elfnet.inference.bundle.one_file import NORMALISE
from elfnet.inference.bundle.stage_graph import FEATURES, LOGITS, in_stage
from elfnet.inference.point_inputs import IMAGES, ROWS, PointInputs
from elfnet.inference.preprocess import Preprocess

ImageInput = Literal["uint8", "float32", "features"]
MAX_EXITS = 30
"""Protobuf allows 100 nested messages, and each exit nests three."""
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
    stages = [_read_stage(k, graph) for k, graph in enumerate(graphs)]
    first = onnx.ModelProto.FromString(graphs[0])
    inputs = PointInputs.of(family)
    main = GraphWriter("main")
    images = _normalise(main, image_input, preprocess, stages[0].features[0])
    exits = ExitNodes(stages, family, inputs)
    table, evidence = exits.begin(main)
    exits.end(main, exits.level(main, 0, table, evidence), table)
    defaults = {} if default_point is None else inputs.values(family.point(default_point).policy, abstain_below)
    graph = helper.make_graph(
        main.nodes,
        "elfnet",
        [images, *(_input(name, width) for name, width in inputs.widths.items())],
        [_output(name, kind, exits.classes) for name, kind in OUTPUTS.items()],
        initializer=[*main.weights, *(numpy_helper.from_array(value, name) for name, value in defaults.items())],
        value_info=main.values,
    )
    model = helper.make_model(graph, ir_version=first.ir_version, opset_imports=_opsets(graphs))
    model.producer_name = "elfnet"
    onnx.checker.check_model(model, full_check=True)
    return model


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


def _read_stage(k: int, content: bytes) -> StageGraph:
    """Read the graph of a stage and rename everything in it."""
    graph = onnx.ModelProto.FromString(content).graph
    weights = {tensor.name: tensor for tensor in graph.initializer}
    passed_on = [value.name for value in graph.output if value.name != LOGITS]
    needed, stage_names = set(passed_on or [LOGITS]), set()
    for node in reversed(graph.node):
        if not needed.isdisjoint(node.output):
            needed.update(node.input)
            stage_names.update(node.output)

    def renamed(value: onnx.ValueInfoProto) -> onnx.ValueInfoProto:
        own = onnx.ValueInfoProto()
        own.CopyFrom(value)
        own.name = in_stage(k, value.name)
        own.type.tensor_type.shape.dim[0].dim_param = f"rows_{k}" if k else "batch"
        return own

    stage_nodes: list[onnx.NodeProto] = []
    head_nodes: list[onnx.NodeProto] = []
    for position, node in enumerate(graph.node):
        own = onnx.NodeProto()
        own.CopyFrom(node)
        own.input[:] = [in_stage(k, name) if name else name for name in node.input]
        own.output[:] = [in_stage(k, name) if name else name for name in node.output]
        in_the_stage = not stage_names.isdisjoint(node.output)
        own.name = in_stage(k, f"{'' if in_the_stage else 'head/'}{position}/{node.name}")
        (stage_nodes if in_the_stage else head_nodes).append(own)
    stage_reads = {name for node in stage_nodes for name in node.input}
    stage_weights: list[onnx.TensorProto] = []
    head_weights: list[onnx.TensorProto] = []
    for name, tensor in weights.items():
        own_tensor = onnx.TensorProto()
        own_tensor.CopyFrom(tensor)
        own_tensor.name = in_stage(k, name)
        (stage_weights if own_tensor.name in stage_reads else head_weights).append(own_tensor)
    outputs = {value.name: value for value in graph.output}
    return StageGraph(
        features=[renamed(value) for value in graph.input],
        next_features=[renamed(outputs[name]) for name in passed_on],
        logits=renamed(outputs[LOGITS]),
        stage_nodes=stage_nodes,
        head_nodes=head_nodes,
        stage_weights=stage_weights,
        head_weights=head_weights,
    )


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
