"""Variants of a network in other precisions: quantisation to int8, bfloat16, and their comparison with float32.

Each variant has its own operating points, fitted on the logits that it computes.
"""

# Shapes: N images, B images per batch, E exits, C classes, K channels, H height, W width

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
from torch import Tensor

from elfnet.calibrate.classifier_choice import request_for
from elfnet.calibrate.family_request import request_from_recipe
from elfnet.calibrate.fit_points import fit_family
from elfnet.calibrate.point_family import Family
from elfnet.data.loading.build import evaluation_batches
from elfnet.data.loading.normalise import Normalisation
from elfnet.data.splits import Splits
from elfnet.errors import RequestError
from elfnet.evaluate.run import evaluate_run
from elfnet.export.onnx_graph import cut_again
from elfnet.inference.backends.build import open_backend
from elfnet.inference.backends.onnxruntime import OnnxBackend
from elfnet.inference.bundle.manifest import AgainstFloat32
from elfnet.inference.bundle.stage_graph import FEATURES, numbered
from elfnet.inference.engine import Backend, all_exit_logits
from elfnet.inference.timing import taking_turns
from elfnet.run.directory import RunDirectory

CALIBRATION_BATCH = 64
OPERATORS = ["Conv", "Add", "Relu", "AveragePool", "MaxPool"]
"""Operators that are quantised. The classifier stays float32: it is small, and exits depend on its output."""
PRECISIONS = ("int8", "bfloat16")
MAX_POINTS_LOST = 0.5
SAMPLE_IMAGES = 512
"""Images used to calibrate the ranges of activations, and for timing."""
TIMED_BATCHES = (1, 32)
BATCH = 128
# ONNX Runtime supports bfloat16 on no CPU, OpenVINO on CPUs that have it.
BACKEND = {"int8": "onnxruntime", "bfloat16": "openvino"}


def quantise_stages(graphs: Sequence[bytes], images_NKHW: NDArray[np.float32]) -> list[bytes]:
    """Quantise the graphs of all stages to int8, statically.

    Args:
        graphs: float32 graphs from `export_stages`.
        images_NKHW: Normalised images of the calibration split; a few hundred of all classes are enough.

    Returns:
        Graphs in the form that `export_stages` returns.
    """
    batches = [
        images_NKHW[start : start + CALIBRATION_BATCH] for start in range(0, len(images_NKHW), CALIBRATION_BATCH)
    ]
    backend = OnnxBackend(graphs)
    features = [backend.start(batch) for batch in batches]
    quantised = []
    for k, graph in enumerate(graphs):
        quantised.append(_quantise(graph, features))
        if k < len(graphs) - 1:
            features = [backend.run_without_head(k, batch) for batch in features]
    return quantised


class _Inputs(CalibrationDataReader):  # type: ignore[misc]
    """The inputs of a stage, one batch at a time, for ONNX Runtime's calibration."""

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
            # 7-bit weights: without VNNI, pairwise sums of 8-bit products overflow.
            reduce_range=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            calibrate_method=CalibrationMethod.MinMax,
        )
        model = onnx.load(str(written))
    return cut_again(model)


def _additions_of_logits(graph: onnx.GraphProto) -> list[str]:
    """Return the names of the nodes that add an expert's logits to those before; exits depend on this sum too."""
    rows = {value.name for value in graph.input if len(value.type.tensor_type.shape.dim) == 2}
    return [node.name for node in graph.node if node.op_type == "Add" and rows.intersection(node.input)]


@dataclass(frozen=True, eq=False)
class MadeVariant:
    """A variant in another precision.

    Attributes:
        precision: `int8` or `bfloat16`.
        graphs: Its graphs; None if it uses those of float32.
        family: Its operating points.
        against_float32: Comparison with float32.
    """

    precision: str
    graphs: list[bytes] | None
    family: Family
    against_float32: AgainstFloat32


def make_variant(
    run: RunDirectory,
    precision: str,
    graphs: Sequence[bytes],
    splits: Splits,
    normalisation: Normalisation,
    *,
    checkpoint: Literal["last", "first-stage"] = "last",
) -> MadeVariant:
    """Make a variant of a run in another precision, and compare it with float32 on the whole calibration split.

    Args:
        run: A calibrated run with its exit table of the calibration split.
        precision: `int8` or `bfloat16`.
        graphs: float32 graphs from `export_stages`.
        splits: The data of the run.
        normalisation: The normalisation of the run.
        checkpoint: The checkpoint of the run that the graphs were made from.

    Raises:
        RequestError: int8 is slower than float32 on this machine or loses 0.5 points of accuracy or more; or the
            processor does not support bfloat16.
    """
    if precision not in PRECISIONS:
        raise RequestError(f"there is no precision {precision!r} to export; choose from: {', '.join(PRECISIONS)}")
    backend_name = BACKEND[precision]
    float32_backend = _open_graphs(backend_name, graphs, "float32")
    batches = partial(
        evaluation_batches, run.recipe().data, normalisation=normalisation, batch_size=BATCH, device=torch.device("cpu")
    )
    some = splits.calibration.take(evenly_spaced(len(splits.calibration), SAMPLE_IMAGES))
    images_NKHW = np.concatenate([_as_array(batch) for batch in batches(some)])
    own = quantise_stages(graphs, images_NKHW) if precision == "int8" else None
    if own is None:
        backend = _open_graphs(backend_name, graphs, "bfloat16")
    else:
        backend = _open_graphs(backend_name, own, "float32")
    # Examples and costs are those of float32; only the logits differ.
    float32 = evaluate_run(run, "calibration", checkpoint=checkpoint)
    logits_NEC = np.concatenate([all_exit_logits(backend, _as_array(batch)) for batch in batches(splits.calibration)])
    table = replace(float32, logits_NEC=logits_NEC)
    against = AgainstFloat32(
        images=table.examples,
        accuracy=_full_depth_accuracy(logits_NEC, table.labels_N),
        accuracy_float32=_full_depth_accuracy(float32.logits_NEC, table.labels_N),
        time_ratio={str(size): time_ratio(backend, float32_backend, images_NKHW[:size]) for size in TIMED_BATCHES},
        backend=backend_name,
    )
    if precision == "int8":
        require_worth_it(against)
    recipe = run.recipe()
    family = fit_family(table, request_for(checkpoint, request_from_recipe(recipe), recipe))
    return MadeVariant(precision, own, replace(family, checkpoint=checkpoint), against)


def _as_array(batch: Tensor) -> NDArray[np.float32]:
    return np.ascontiguousarray(batch.numpy())


def _open_graphs(name: str, graphs: Sequence[bytes], precision: str) -> Backend:
    def no_network() -> None:
        raise AssertionError("these backends run graphs")

    return open_backend(name, graphs=lambda: graphs, network=no_network, precision=precision)  # type: ignore[arg-type]


def evenly_spaced(images: int, most: int) -> NDArray[np.int64]:
    """Return at most `most` evenly spaced positions, so that a split that is sorted by class gives all classes."""
    return np.unique(np.linspace(0, images - 1, num=min(most, images)).round().astype(np.int64))


def _full_depth_accuracy(logits_NEC: NDArray[np.float32], labels_N: NDArray[np.int64]) -> float:
    return float((np.argmax(logits_NEC[:, -1], axis=1) == labels_N).mean())


def time_ratio(backend: Backend, reference: Backend, images_BKHW: NDArray[np.float32], *, rounds: int = 15) -> float:
    """Return the processor time of all stages relative to a reference backend, measured in turn, median over rounds.

    Processor time, not wall-clock time: whether a variant is accepted must not depend on other load on the machine.
    With two threads on a busy machine, the ratio of wall-clock times had quartiles of 0.1 and 4.9 at batch 1, this one
    of 0.7 and 1.0.
    """

    def full_depth(measured: Backend) -> None:
        features = measured.start(images_BKHW)
        for k in range(measured.exits - 1):
            features = measured.run_without_head(k, features)
        measured.run(measured.exits - 1, features)

    calls = {"own": lambda: full_depth(backend), "reference": lambda: full_depth(reference)}
    seconds = taking_turns(calls, rounds=rounds, clock=time.process_time)
    return statistics.median(own / other for own, other in zip(seconds["own"], seconds["reference"], strict=True))


def require_worth_it(against: AgainstFloat32) -> None:
    """Refuse int8 that is slower than float32 at any batch size, or loses too much accuracy."""
    way_out = "export without --int8"
    if against.points_lost >= MAX_POINTS_LOST:
        raise RequestError(
            f"int8 loses {against.points_lost:.2f} points of accuracy on {against.images} calibration images, "
            f"the limit is {MAX_POINTS_LOST}; {way_out}"
        )
    slow = {size: ratio for size, ratio in against.time_ratio.items() if ratio > 1.0}
    if slow:
        size, ratio = max(slow.items(), key=lambda item: item[1])
        raise RequestError(f"int8 takes {ratio:.2f} times the processor time of float32 at batch {size}; {way_out}")
