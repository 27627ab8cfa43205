"""The backend for OpenVINO on the CPU."""

# Shapes: B examples that have not exited, K channels, H height, W width, C classes

from collections import deque
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elfnet.errors import RequestError, WorkError
from elfnet.extras import missing_package
from elfnet.inference.backends.build import Precision
from elfnet.inference.bundle.stage_graph import graph_bytes, is_stage
from elfnet.inference.engine import checked_images

try:
    import openvino  # type: ignore[import-untyped]
except ModuleNotFoundError:
    raise RequestError(missing_package("backend openvino", "openvino")) from None

CORE = openvino.Core()
"""One core for the whole process, never released.

The CPU plugin of a core installs a signal stack in the thread that loads it, and restores the previous stack when it is
released. With two cores, releasing the first frees the stack that the second restores: the next signal that Python
handles (SIGCHLD, Ctrl-C) then uses freed memory, and the process crashes without a message.
"""
MAX_FIXED_BATCH = 8
"""Batches up to this size have a graph compiled for exactly this size."""
SMALL_GRAPH = 8 * 2**20
"""Bytes. A larger graph is compiled only twice: for one example, and for any batch size."""


class OpenVinoBackend:
    """Runs ONNX graphs, one per stage, with OpenVINO.

    Args:
        graphs: Graphs that `export_stages` wrote, or their files, in order.
        precision: Precision of the whole graph, including the classifier. It is always set, because OpenVINO's default
            is bfloat16 on processors that support it.
        threads: Threads per call; None for one per core.

    Raises:
        RequestError: The precision is bfloat16 and the processor does not support it.
    """

    def __init__(
        self, graphs: Sequence[bytes | Path], *, precision: Precision = "float32", threads: int | None = None
    ) -> None:
        if precision == "bfloat16" and "BF16" not in CORE.get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
            raise RequestError(
                "this processor does not support bfloat16, and OpenVINO would compute float32; choose float32"
            )
        settings: dict[str, Any] = {
            "INFERENCE_PRECISION_HINT": {"float32": "f32", "bfloat16": "bf16"}[precision],
            "PERFORMANCE_HINT": "LATENCY",
            # Pinned threads of two processes may share one core while another core is idle.
            "ENABLE_CPU_PINNING": False,
        }
        if threads is not None:
            settings["INFERENCE_NUM_THREADS"] = threads
        self._stages = [_Stage(settings, k, graph_bytes(graph)) for k, graph in enumerate(graphs)]
        self._image_shape = self._stages[0].input_shapes[0]

    @property
    def exits(self) -> int:
        return len(self._stages)

    def start(self, images_BKHW: NDArray[np.float32]) -> Any:
        return [checked_images(images_BKHW, self._image_shape)]

    def run(self, k: int, features: Any) -> tuple[Any, NDArray[np.float32]]:
        *features, logits_BC = self._stages[k].run(features, head=True)
        return features, logits_BC

    def run_without_head(self, k: int, features: Any) -> Any:
        return self._stages[k].run(features, head=False)

    def keep(self, features: Any, stay: NDArray[np.int64]) -> Any:
        return [np.take(tensor, stay, axis=0) for tensor in features]


class _Stage:
    """The compiled graphs of one stage: with and without its head, for any batch size and for each small batch size.

    A graph for any batch size plans its memory again whenever the size changes, which takes 0.3-0.6 ms. That is 2 % of
    the time of a ResNet-32 stage for 64 examples, 12 % for 8 and 50 % for 1, and the size changes at almost every
    exit. Padding to a few sizes would cost more than it saves. Therefore each small size has its own graph, compiled on
    first use (40 ms and 4 MB each), and larger sizes share one. For one example the fixed graph is also 1.1 times as
    fast as the general graph that has planned for this size.
    """

    def __init__(self, settings: dict[str, Any], k: int, graph: bytes) -> None:
        self._settings = settings
        try:
            self._model = CORE.read_model(graph)
            self.input_shapes = [_example_shape(value) for value in self._model.inputs]
            self._output_shapes = [_example_shape(value) for value in self._model.outputs]
        except RuntimeError as error:
            # The rest of the message names files and lines of OpenVINO's source code.
            reason = " ".join(str(error).rsplit(": ", 1)[-1].split())
            raise WorkError(f"OpenVINO cannot read the graph of stage {k} ({reason}); export it again") from None
        names = [value.get_any_name() for value in (*self._model.inputs, *self._model.outputs)]
        if not is_stage(names[0], names[-1]):
            raise WorkError(f"the graph of stage {k} has inputs and outputs {names}; export it again")
        self._max_fixed_batch = MAX_FIXED_BATCH if len(graph) <= SMALL_GRAPH else 1
        self._compiled: dict[tuple[int, bool], _Requests] = {}
        self._compiling = Lock()

    def run(self, features: list[NDArray[np.float32]], *, head: bool) -> list[NDArray[np.float32]]:
        examples = len(features[0])
        requests = self._requests(examples if examples <= self._max_fixed_batch else -1, head)
        shapes = self._output_shapes if head else self._output_shapes[:-1]
        # New arrays, written directly: the next call would overwrite the request's own output arrays.
        outputs = [np.empty((examples, *shape), dtype=np.float32) for shape in shapes]
        requests.run(features, outputs)
        return outputs

    def _requests(self, batch: int, head: bool) -> "_Requests":
        found = self._compiled.get((batch, head))
        if found is not None:
            return found
        with self._compiling:
            if (batch, head) not in self._compiled:
                self._compiled[batch, head] = _Requests(self._compile(batch, head))
            return self._compiled[batch, head]

    def _compile(self, batch: int, head: bool) -> Any:
        model = self._model.clone()
        if not head:
            # Nodes that lead only to the logits are no longer reachable and are dropped.
            model = openvino.Model(model.get_results()[:-1], model.get_parameters())
        model.reshape({i: [batch, *shape] for i, shape in enumerate(self.input_shapes)})
        return CORE.compile_model(model, "CPU", self._settings)


class _Requests:
    """Inference requests of one compiled graph, one per concurrent caller."""

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled
        # `pop` and `append` of a deque are atomic.
        self._idle: deque[Any] = deque()

    def run(self, inputs: list[NDArray[np.float32]], outputs: list[NDArray[np.float32]]) -> None:
        try:
            request = self._idle.pop()
        except IndexError:
            request = self._compiled.create_infer_request()
        for i, array in enumerate(inputs):
            request.set_input_tensor(i, openvino.Tensor(array, shared_memory=True))
        for i, array in enumerate(outputs):
            request.set_output_tensor(i, openvino.Tensor(array, shared_memory=True))
        request.infer()
        self._idle.append(request)


def _example_shape(value: Any) -> tuple[int, ...]:
    """Return the shape without the batch dimension."""
    return tuple(dimension.get_length() for dimension in list(value.get_partial_shape())[1:])
