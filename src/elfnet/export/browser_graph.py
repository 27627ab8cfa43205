"""The graph that the page of `export --web` runs: optimised at export, for one image at a time.

Optimising in the browser takes longer than anything else before the first answer.
"""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import onnx
import onnxruntime  # type: ignore[import-untyped]
from onnx import numpy_helper

from elfnet.inference.backends.onnxruntime import open_session, session_options
from elfnet.inference.bundle.one_file import OneFile, with_metadata, without_defaults
from elfnet.inference.graph_inputs import ROWS

BATCH = "batch"
"""Name of the first dimension of images and answers in a file."""


def optimised(bundle: OneFile) -> bytes:
    """Return the file with required inputs and a graph for one image, which needs no optimising in the browser.

    Without the path for batches, there are a third of the nodes to load. Only optimisations that suit every processor
    are made. The graph has operators of ONNX Runtime, so that the result is not a bundle; metadata and hash are those
    of one.
    """
    model = onnx.ModelProto.FromString(without_defaults(bundle))
    del model.metadata_props[:]
    _read_weights_directly(model.graph)
    for graph in _graphs(model.graph):
        for value in (*graph.input, *graph.output, *graph.value_info):
            for dimension in value.type.tensor_type.shape.dim[:1]:
                if dimension.dim_param in (BATCH, ROWS):
                    dimension.dim_value = 1
    options = session_options(1)
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    with TemporaryDirectory() as directory:
        place = Path(directory) / "optimised.onnx"
        options.optimized_model_filepath = str(place)
        open_session(model.SerializeToString(), options, what=str(bundle.path))
        return with_metadata(place.read_bytes(), bundle.manifest)


def _read_weights_directly(main: onnx.GraphProto) -> None:
    """Remove every `Reshape` of a shared weight (see `stage_nodes`): each would become a copy of the weight.

    The copies let ONNX Runtime change the layout of weights, which it does not do for WebAssembly.
    """
    weights = {tensor.name: tensor for tensor in main.initializer}
    for graph in _graphs(main):
        constants = {tensor.name: tensor for tensor in graph.initializer}
        flat = {
            node.output[0]: node
            for node in graph.node
            if node.op_type == "Reshape" and node.input[0] in weights and node.input[1] in constants
        }
        for node in flat.values():
            weights[node.input[0]].dims[:] = numpy_helper.to_array(constants[node.input[1]]).tolist()
            graph.node.remove(node)
            graph.initializer.remove(constants[node.input[1]])
        for node in graph.node:
            node.input[:] = [flat[name].input[0] if name in flat else name for name in node.input]


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yield a graph and all graphs inside it."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _graphs(attribute.g)
