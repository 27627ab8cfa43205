"""A bundle's network in other precisions, each with operating points of its own, fitted on what it really computes."""

# Shapes: N images, E exits, C classes
# Shapes: N images, K channels, H height, W width

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
from torch import Tensor

from elfnet.calibrate.family import Family
from elfnet.calibrate.fit import fit_family, request_from_recipe
from elfnet.data.loading.build import evaluation_batches
from elfnet.data.loading.normalise import Normalisation
from elfnet.data.splits import Splits
from elfnet.errors import RequestError
from elfnet.evaluate.run import evaluate_run
from elfnet.export.onnx_graph import cut_again
from elfnet.export.parity import logits_of_backend
from elfnet.inference.backends.build import open_backend
from elfnet.inference.backends.onnxruntime import FEATURES, OnnxBackend, numbered
from elfnet.inference.bundle.manifest import AgainstFloat32
from elfnet.inference.engine import Backend
from elfnet.inference.timing import taking_turns
from elfnet.run.directory import RunDirectory

CALIBRATION_BATCH = 64
OPERATORS = ["Conv", "Add", "Relu", "AveragePool"]
"""What is computed in integers. The classifier is small, and decides: it stays as it is."""


def quantise_stages(graphs: Sequence[bytes], images_NKHW: NDArray[np.float32]) -> list[bytes]:
    """8-bit graphs of the same stages, in the same form as `export_stages` writes them.

    Args:
        graphs: float32, from `export_stages`.
        images_NKHW: normalised images of the calibration split; a few hundred of all classes are enough.
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


PRECISIONS = ("int8", "bfloat16")
MAX_POINTS_LOST = 0.5
SOME_IMAGES = 512
"""For the ranges of activations, and to be timed."""
TIMED_BATCHES = (1, 32)
BATCH = 128
# ONNX Runtime computes bfloat16 on no CPU, OpenVINO on those that have it.
BACKEND = {"int8": "onnxruntime", "bfloat16": "openvino"}


@dataclass(frozen=True, eq=False)
class MadeVariant:
    """Graphs (None: those of float32), operating points, and how it compares with float32."""

    precision: str
    graphs: list[bytes] | None
    family: Family
    against_float32: AgainstFloat32


def make_variant(
    run: RunDirectory, precision: str, graphs: Sequence[bytes], splits: Splits, normalisation: Normalisation
) -> MadeVariant:
    """The run in another precision, compared with float32 on the whole calibration split.

    int8 is refused where it is slower than float32 here, or loses half a point of accuracy or more: it would be worth
    nothing. bfloat16 is refused where the processor has none: it would be float32 under another name. Where it has,
    the loss is measured and written down.
    """
    if precision not in PRECISIONS:
        raise RequestError(f"there is no precision {precision!r} to export; choose from: {', '.join(PRECISIONS)}")
    engine = BACKEND[precision]
    plain = _open(engine, graphs, "float32")
    batches = partial(
        evaluation_batches, run.recipe().data, normalisation=normalisation, batch_size=BATCH, device=torch.device("cpu")
    )
    some = splits.calibration.take(_spread(len(splits.calibration), SOME_IMAGES))
    images_NKHW = np.concatenate([_as_array(batch) for batch in batches(some)])
    own = quantise_stages(graphs, images_NKHW) if precision == "int8" else None
    computes = _open(engine, graphs, "bfloat16") if own is None else _open(engine, own, "float32")
    # The same examples and costs; the logits are what this precision gives.
    float32 = evaluate_run(run, "calibration")
    logits_NEC = np.concatenate(
        [logits_of_backend(computes, _as_array(batch)) for batch in batches(splits.calibration)]
    )
    table = replace(float32, logits_NEC=logits_NEC)
    against = AgainstFloat32(
        images=table.examples,
        accuracy=_full_depth_accuracy(logits_NEC, table.labels_N),
        accuracy_float32=_full_depth_accuracy(float32.logits_NEC, table.labels_N),
        time_ratio={str(size): time_ratio(computes, plain, images_NKHW[:size]) for size in TIMED_BATCHES},
        backend=engine,
    )
    if precision == "int8":
        require_worth_it(against)
    family = fit_family(table, request_from_recipe(run.recipe()))
    return MadeVariant(precision, own, family, against)


def _as_array(batch: Tensor) -> NDArray[np.float32]:
    return np.ascontiguousarray(batch.numpy())


def _open(engine: str, graphs: Sequence[bytes], precision: str) -> Backend:
    def no_network() -> None:
        raise AssertionError("these engines run graphs")

    return open_backend(engine, graphs=lambda: graphs, network=no_network, precision=precision)  # type: ignore[arg-type]


def _spread(images: int, most: int) -> NDArray[np.int64]:
    """Positions of some of them, from everywhere: a split may be sorted by class."""
    return np.unique(np.linspace(0, images - 1, num=min(most, images)).round().astype(np.int64))


def _full_depth_accuracy(logits_NEC: NDArray[np.float32], labels_N: NDArray[np.int64]) -> float:
    return float((np.argmax(logits_NEC[:, -1], axis=1) == labels_N).mean())


def time_ratio(computes: Backend, plain: Backend, images_BKHW: NDArray[np.float32], *, rounds: int = 15) -> float:
    """Processor time of all stages at full depth against the other's: taking turns, median over the rounds.

    Not the time that passes: whether a variant is written must not depend on what else the machine does. With two
    threads and other work on the machine, that ratio had quartiles of 0.1 and 4.9 at batch 1, this one of 0.7 and 1.0.
    """

    def full_depth(backend: Backend) -> None:
        features = backend.start(images_BKHW)
        for k in range(backend.exits - 1):
            features = backend.run_without_head(k, features)
        backend.run(backend.exits - 1, features)

    calls = {"own": lambda: full_depth(computes), "plain": lambda: full_depth(plain)}
    seconds = taking_turns(calls, rounds=rounds, clock=time.process_time)
    return statistics.median(own / other for own, other in zip(seconds["own"], seconds["plain"], strict=True))


def require_worth_it(against: AgainstFloat32) -> None:
    """Refuse int8 that is slower at any of the batch sizes, or that loses too much."""
    way_out = "export without --int8"
    if against.points_lost >= MAX_POINTS_LOST:
        raise RequestError(
            f"int8 loses {against.points_lost:.2f} points of accuracy on {against.images} calibration images, "
            f"{MAX_POINTS_LOST} are too many; {way_out}"
        )
    slow = {size: ratio for size, ratio in against.time_ratio.items() if ratio > 1.0}
    if slow:
        size, ratio = max(slow.items(), key=lambda item: item[1])
        raise RequestError(f"int8 takes {ratio:.2f} times the processor time of float32 at batch {size}; {way_out}")
