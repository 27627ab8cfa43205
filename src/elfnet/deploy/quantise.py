"""Graphs in 8-bit integers: weights and activations, with ranges seen on calibration images.

Features between stages, pooled features and logits stay float32, so that examples can be kept and decided about as
before. Answers change a little: a quantised network is another network, with operating points of its own.
"""

# Shapes: N images, K channels, H height, W width

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

from elfnet.deploy.graph_names import FEATURES, numbered
from elfnet.deploy.onnx_backend import OnnxBackend
from elfnet.deploy.onnx_cut import cut_again

BATCH = 64
OPERATORS = ["Conv", "Add", "Relu", "AveragePool"]
"""What is computed in integers. The classifier is small, and decides: it stays as it is."""


def quantise_stages(graphs: Sequence[bytes], images_NKHW: NDArray[np.float32]) -> list[bytes]:
    """8-bit graphs of the same stages, in the same form as `export_stages` writes them.

    Args:
        graphs: float32, from `export_stages`.
        images_NKHW: normalised images of the calibration split; a few hundred of all classes are enough.
    """
    batches = [images_NKHW[start : start + BATCH] for start in range(0, len(images_NKHW), BATCH)]
    backend = OnnxBackend(graphs)
    features = [backend.start(batch) for batch in batches]
    quantised = []
    for k, graph in enumerate(graphs):
        quantised.append(_quantise(graph, features))
        if k < len(graphs) - 1:
            features = [backend.run_without_head(k, batch) for batch in features]
    return quantised


class _Inputs(CalibrationDataReader):  # type: ignore[misc]
    """What a stage is given, batch by batch."""

    def __init__(self, batches: Sequence[Any]) -> None:
        self._batches: Iterator[Any] = iter(batches)

    def get_next(self) -> dict[str, NDArray[np.float32]] | None:
        features = next(self._batches, None)
        return None if features is None else dict(zip(numbered(FEATURES, len(features)), features, strict=True))


def _quantise(graph: bytes, features: Sequence[Any]) -> bytes:
    with TemporaryDirectory() as place:
        plain, prepared, written = (Path(place) / name for name in ("plain.onnx", "prepared.onnx", "int8.onnx"))
        plain.write_bytes(graph)
        quant_pre_process(str(plain), str(prepared), skip_symbolic_shape=True)
        quantize_static(
            str(prepared),
            str(written),
            _Inputs(features),
            quant_format=QuantFormat.QDQ,
            op_types_to_quantize=OPERATORS,
            nodes_to_exclude=_additions_of_logits(onnx.load(str(prepared)).graph),
            per_channel=True,
            # Seven bits for the weights: without VNNI, products of full eight-bit numbers overflow when added in pairs.
            reduce_range=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            calibrate_method=CalibrationMethod.MinMax,
        )
        model = onnx.load(str(written))
    return cut_again(model)


def _additions_of_logits(graph: onnx.GraphProto) -> list[str]:
    """Names of the nodes that add an expert's logits to the sum of those before: that sum decides, too."""
    rows = {value.name for value in graph.input if len(value.type.tensor_type.shape.dim) == 2}
    return [node.name for node in graph.node if node.op_type == "Add" and rows.intersection(node.input)]
