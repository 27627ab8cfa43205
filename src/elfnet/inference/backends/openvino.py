"""Stages computed by OpenVINO on the CPU."""

# Shapes: B examples still here, K channels, H height, W width, C classes

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
from elfnet.inference.backends.onnxruntime import FEATURES, LOGITS, graph_bytes
from elfnet.inference.engine import checked_images

try:
    import openvino  # type: ignore[import-untyped]
except ModuleNotFoundError:
    raise RequestError(missing_package("backend openvino", "openvino")) from None

CORE = openvino.Core()
"""One for the whole process, and never given back.

The CPU plugin of each core gives the thread that loads it a signal stack of its own, and on its end puts back the one
that it found. Of two cores, the first that ends frees the stack that the second puts back: the next signal that Python
handles (the end of a child, Ctrl-C) is then delivered to memory that is gone, and the process dies without a word.
"""
FIXED_UP_TO = 8
"""Batches up to this size have a graph compiled for exactly them."""
SMALL_GRAPH = 8 * 2**20
"""Bytes; a larger graph has a compiled copy for one example and for any batch, and no others."""


class OpenVinoBackend:
    """Graphs that `export_stages` wrote, one per stage.

    Args:
        graphs: the graphs or their files, in order.
        precision: of the whole graph, classifier included. Always told to OpenVINO, since left alone it takes bfloat16
            where the processor has it.
        threads: threads that compute one call; None for one a core.
    """

    def __init__(
        self, graphs: Sequence[bytes | Path], *, precision: Precision = "float32", threads: int | None = None
    ) -> None:
        if precision == "bfloat16" and "BF16" not in CORE.get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
            raise RequestError("this processor has no bfloat16, and OpenVINO would compute float32; ask for float32")
        settings: dict[str, Any] = {
            "INFERENCE_PRECISION_HINT": {"float32": "f32", "bfloat16": "bf16"}[precision],
            "PERFORMANCE_HINT": "LATENCY",
            # Pinned threads of this process and of another one may meet on one core while the next is free.
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
    """A stage's compiled graphs: with and without its head, for any batch and for each of a few small ones.

    A graph for any batch plans its memory anew whenever the batch differs from the one before, which adds 0.3-0.6 ms:
    2 % of a stage of ResNet-32 on 64 examples, but 12 % on eight and a half on one, and when examples leave the batch
    nearly always differs. Padding to a few sizes would compute more than it saves. So each small batch has a graph of
    its own, compiled when it first comes (40 ms and 4 MB each), and large ones share one. With one example the fixed
    graph is also 1.1x as fast as the other on the batch it has planned for.
    """

    def __init__(self, settings: dict[str, Any], k: int, graph: bytes) -> None:
        self._settings = settings
        try:
            self._model = CORE.read_model(graph)
            self.input_shapes = [_shape_of_one(value) for value in self._model.inputs]
            self._output_shapes = [_shape_of_one(value) for value in self._model.outputs]
        except RuntimeError as error:
            # The rest of the message names places in OpenVINO's sources.
            reason = " ".join(str(error).rsplit(": ", 1)[-1].split())
            raise WorkError(f"OpenVINO cannot read the graph of stage {k} ({reason}); export it again") from None
        names = [value.get_any_name() for value in (*self._model.inputs, *self._model.outputs)]
        if not names[0].startswith(FEATURES) or names[-1] != LOGITS:
            raise WorkError(f"the graph of stage {k} has inputs and outputs {names}; export it again")
        self._fixed_up_to = FIXED_UP_TO if len(graph) <= SMALL_GRAPH else 1
        self._compiled: dict[tuple[int, bool], _Requests] = {}
        self._compiling = Lock()

    def run(self, features: list[NDArray[np.float32]], *, head: bool) -> list[NDArray[np.float32]]:
        examples = len(features[0])
        requests = self._requests(examples if examples <= self._fixed_up_to else -1, head)
        shapes = self._output_shapes if head else self._output_shapes[:-1]
        # Arrays of our own, written to directly: those of a request would be overwritten by its next call.
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
            # What leads only to the logits is not reachable any more and goes away.
            model = openvino.Model(model.get_results()[:-1], model.get_parameters())
        model.reshape({i: [batch, *shape] for i, shape in enumerate(self.input_shapes)})
        return CORE.compile_model(model, "CPU", self._settings)


class _Requests:
    """Requests of one compiled graph; each serves one caller at a time, and there are as many as callers at once."""

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled
        # Taking from and adding to a deque are atomic.
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


def _shape_of_one(value: Any) -> tuple[int, ...]:
    """The shape of one example, without the batch."""
    return tuple(dimension.get_length() for dimension in list(value.get_partial_shape())[1:])
