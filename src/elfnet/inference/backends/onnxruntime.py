"""Stages computed by ONNX Runtime on the CPU."""

# Shapes: B examples still here, K channels, H height, W width, C classes

from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import onnxruntime  # type: ignore[import-untyped]
from numpy.typing import NDArray

from elfnet.errors import WorkError
from elfnet.inference.engine import checked_images


def graph_bytes(graph: bytes | Path) -> bytes:
    """Runtimes get bytes, never a path: a graph with its weights in another file is then refused by them."""
    if isinstance(graph, bytes):
        return graph
    try:
        return graph.read_bytes()
    except OSError as error:
        raise WorkError(f"cannot read the graph {graph}: {error.strerror}; export it again") from None


FEATURES = "features"
NEXT_FEATURES = "next_features"
LOGITS = "logits"


def numbered(name: str, count: int) -> list[str]:
    """The name itself where a stage passes on one tensor; `name_0`, `name_1` and so on where it passes on several."""
    return [name] if count == 1 else [f"{name}_{i}" for i in range(count)]


def in_stage(k: int, name: str) -> str:
    """The name while all stages are still in one graph."""
    return f"stage_{k}/{name}"


GRAPH_FIELD = b"\x3a"
"""`ModelProto.graph`: field 7, a length and that many bytes."""
PLACE = "elfnet.stage"
"""The entry of the model's metadata: where the header ends, the stage begins, and the stage ends."""


def join_parts(header: bytes, stage: bytes, head: bytes) -> tuple[bytes, str]:
    """The model so far, to which nothing but fields of the model may be appended, and the value for `PLACE`.

    Args:
        header: a ModelProto without a graph.
        stage: a GraphProto without the head's nodes, weights and output.
        head: a GraphProto with these only.
    """
    opening = header + GRAPH_FIELD + _varint(len(stage) + len(head))
    return opening + stage + head, f"{len(header)} {len(opening)} {len(opening) + len(stage)}"


def stage_alone(model: bytes, metadata: Mapping[str, str]) -> bytes:
    """The model without its head; `KeyError` or `ValueError` if it is not one that `join_parts` wrote."""
    header_end, start, end = (int(place) for place in metadata[PLACE].split())
    if not 0 < header_end < start < end <= len(model) or model[header_end : header_end + 1] != GRAPH_FIELD:
        raise ValueError("the place of the stage is wrong")
    return model[:header_end] + GRAPH_FIELD + _varint(end - start) + model[start:end]


def _varint(number: int) -> bytes:
    """Protobuf's integers: seven bits a byte, the lowest first, the eighth bit says that more follow."""
    groups = [number & 0x7F]
    while number := number >> 7:
        groups[-1] |= 0x80
        groups.append(number & 0x7F)
    return bytes(groups)


Features = list[NDArray[np.float32]]


class OnnxBackend:
    """Graphs that `export_stages` wrote, one per stage.

    Features are NumPy arrays: ONNX Runtime reads and hands them over without a copy, and its own values measure no
    quicker on the largest batch and slower on the smallest (batch 1, first stage: 1.35x).

    Args:
        graphs: the graphs or their files, in order.
        threads: threads that compute one call; None for one a core.
    """

    def __init__(self, graphs: Sequence[bytes | Path], *, threads: int | None = None) -> None:
        self._options = _session_options(threads)
        self._stages = [_Stage(k, graph_bytes(graph), self._options) for k, graph in enumerate(graphs)]
        self._image_shape = tuple(self._stages[0].session.get_inputs()[0].shape[1:])

    @property
    def exits(self) -> int:
        return len(self._stages)

    def start(self, images_BKHW: NDArray[np.float32]) -> Any:
        return [checked_images(images_BKHW, self._image_shape)]

    def run(self, k: int, features: Any) -> tuple[Any, NDArray[np.float32]]:
        stage = self._stages[k]
        *features, logits_BC = stage.session.run(stage.outputs, dict(zip(stage.inputs, features, strict=True)))
        return features, logits_BC

    def run_without_head(self, k: int, features: Any) -> Any:
        stage = self._stages[k]
        return stage.without_head().run(None, dict(zip(stage.inputs, features, strict=True)))

    def keep(self, features: Any, stay: NDArray[np.int64]) -> Any:
        # `take` copies whole examples: 0.7 of the time of indexing on a batch of 128.
        return [np.take(tensor, stay, axis=0) for tensor in features]


class _Stage:
    """A session for the stage with its head, and one for the stage alone once somebody asks for it.

    Asking a session for fewer outputs saves nothing: ONNX Runtime 1.31 computes the head all the same, also with
    `only_execute_path_to_fetches`.
    """

    def __init__(self, k: int, graph: bytes, options: onnxruntime.SessionOptions) -> None:
        self._k, self._graph, self._options = k, graph, options
        self.session = _session(k, graph, options)
        self.inputs = [value.name for value in self.session.get_inputs()]
        self.outputs = [value.name for value in self.session.get_outputs()]
        if not self.inputs or not self.inputs[0].startswith(FEATURES) or self.outputs[-1:] != [LOGITS]:
            raise WorkError(f"the graph of stage {k} takes {self.inputs} and gives {self.outputs}; export it again")
        self._alone: onnxruntime.InferenceSession | None = None
        self._building = Lock()

    def without_head(self) -> onnxruntime.InferenceSession:
        with self._building:
            if self._alone is None:
                try:
                    graph = stage_alone(self._graph, self.session.get_modelmeta().custom_metadata_map)
                except (KeyError, ValueError):
                    raise WorkError(
                        f"the graph of stage {self._k} does not say where its head begins; export it again"
                    ) from None
                self._alone = _session(self._k, graph, self._options)
            return self._alone


def _session_options(threads: int | None) -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    # A stage is a chain, so there is nothing to run side by side.
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.inter_op_num_threads = 1
    options.intra_op_num_threads = threads or 0
    # Every session has threads of its own, and by default they spin for a while when they have nothing to do: those of
    # one stage then take the cores from the next. Two threads, ResNet-32, a machine that has other work too: spinning
    # takes 3-4x the processor time at any batch size, and 10x the wall-clock time at batch 1. A pool shared by all
    # sessions would be an alternative, but it makes every other session of the process fail that does not ask for it.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # Failures come as exceptions; in the log they would be told twice.
    options.log_severity_level = 4
    return options


def _session(k: int, graph: bytes, options: onnxruntime.SessionOptions) -> onnxruntime.InferenceSession:
    try:
        # The fallback is for other devices; on the CPU it would only try the same again and print about it.
        return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"], enable_fallback=0)
    except Exception as error:
        reason = " ".join(str(error).split())
        raise WorkError(f"ONNX Runtime cannot read the graph of stage {k} ({reason}); export it again") from None
