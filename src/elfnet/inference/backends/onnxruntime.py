"""The backend for ONNX Runtime on the CPU: one session per stage."""

# Shapes: B examples that have not exited, K channels, H height, W width, C classes

from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import onnxruntime  # type: ignore[import-untyped]
from numpy.typing import NDArray

from elfnet.errors import WorkError
from elfnet.inference.bundle.stage_graph import graph_bytes, is_stage, stage_alone
from elfnet.inference.engine import checked_images


class OnnxBackend:
    """Runs ONNX graphs, one per stage, with ONNX Runtime.

    Features are NumPy arrays, which ONNX Runtime reads and returns without a copy. Its own `OrtValue` was no faster on
    the largest batch and slower on the smallest (batch 1, first stage: 1.35 times).

    Args:
        graphs: Graphs that `export_stages` wrote, or their files, in order.
        threads: Threads per call; None for one per core.
    """

    def __init__(self, graphs: Sequence[bytes | Path], *, threads: int | None = None) -> None:
        self._options = session_options(threads)
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
        # `take` copies whole examples; it takes 0.7 times as long as indexing for a batch of 128.
        return [np.take(tensor, stay, axis=0) for tensor in features]


class _Stage:
    """A session for the stage with its head, and one for the stage alone, created on first use.

    One session with fewer outputs would not do: ONNX Runtime 1.31 computes the head anyway, even with
    `only_execute_path_to_fetches`.
    """

    def __init__(self, k: int, graph: bytes, options: onnxruntime.SessionOptions) -> None:
        self._k, self._graph, self._options = k, graph, options
        self.session = _session(k, graph, options)
        self.inputs = [value.name for value in self.session.get_inputs()]
        self.outputs = [value.name for value in self.session.get_outputs()]
        if not self.inputs or not is_stage(self.inputs[0], self.outputs[-1]):
            raise WorkError(
                f"the graph of stage {k} has inputs {self.inputs} and outputs {self.outputs}; export it again"
            )
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


def session_options(threads: int | None) -> onnxruntime.SessionOptions:
    """Return the options of every session of this package."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    # A stage is a chain of operators: nothing can run in parallel.
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.inter_op_num_threads = 1
    options.intra_op_num_threads = threads or 0
    # Every session has its own threads, and idle threads spin by default: those of one stage take the cores from the
    # next stage. With two threads and ResNet-32 on a busy machine, spinning takes 3-4 times the CPU time at any batch
    # size, and 10 times the wall-clock time at batch 1. A global thread pool would be an alternative, but then every
    # other session of the process that does not use the pool fails.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # Failures are raised as exceptions; the log would repeat them.
    options.log_severity_level = 4
    return options


def _session(k: int, graph: bytes, options: onnxruntime.SessionOptions) -> onnxruntime.InferenceSession:
    return open_session(graph, options, what=f"the graph of stage {k}")


def open_session(graph: bytes, options: onnxruntime.SessionOptions, *, what: str) -> onnxruntime.InferenceSession:
    """Open a session on the CPU; `what` names the graph in the message if ONNX Runtime cannot read it."""
    try:
        # The fallback is for other devices; on the CPU it would retry the same and print a message.
        return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"], enable_fallback=0)
    except Exception as error:
        reason = " ".join(str(error).split())
        raise WorkError(f"ONNX Runtime cannot read {what} ({reason}); export it again") from None
