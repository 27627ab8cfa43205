"""What is particular to OpenVINO: precision, plans for small batches, damaged graphs."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from elfnet.errors import RequestError, WorkError
from elfnet.inference.backends import openvino as openvino_backend
from elfnet.inference.backends.openvino import MAX_FIXED_BATCH, OpenVinoBackend

pytestmark = pytest.mark.parametrize("exported_network", ["as if trained"], indirect=True)


def test_damaged_graph(exported_graphs: list[bytes]) -> None:
    for damaged in (b"", b"no graph at all", exported_graphs[1][:3000]):
        with pytest.raises(WorkError, match=r"cannot read the graph of stage 1 .*; export it again") as caught:
            OpenVinoBackend([exported_graphs[0], damaged])
        assert "\n" not in str(caught.value)
    with pytest.raises(WorkError, match=r"has inputs and outputs .*Logits.*; export it again"):
        OpenVinoBackend([exported_graphs[0].replace(b"logits", b"Logits")])


def _hint(backend: OpenVinoBackend) -> str:
    compiled = backend._stages[0]._compile(1, head=True)
    return str(compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name())


def test_precision_is_told(exported_graphs: list[bytes]) -> None:
    assert _hint(OpenVinoBackend(exported_graphs)) == "f32"
    if "BF16" in openvino_backend.CORE.get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
        assert _hint(OpenVinoBackend(exported_graphs, precision="bfloat16")) == "bf16"
    else:
        with pytest.raises(RequestError, match="this processor does not support bfloat16"):
            OpenVinoBackend(exported_graphs, precision="bfloat16")


def test_small_batches_have_graphs_of_their_own_and_large_ones_share(
    exported_graphs: list[bytes], exported_images: NDArray[np.float32], monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = (1, 2, MAX_FIXED_BATCH, MAX_FIXED_BATCH + 1, 30, 1, 31)
    backend = OpenVinoBackend(exported_graphs[:1], threads=1)
    for size in sizes:
        backend.run(0, backend.start(exported_images[:size]))
    assert set(backend._stages[0]._compiled) == {(1, True), (2, True), (MAX_FIXED_BATCH, True), (-1, True)}
    monkeypatch.setattr(openvino_backend, "SMALL_GRAPH", 1000)
    backend = OpenVinoBackend(exported_graphs[:1], threads=1)
    for size in sizes:
        backend.run(0, backend.start(exported_images[:size]))
    assert set(backend._stages[0]._compiled) == {(1, True), (-1, True)}


def test_results_are_not_overwritten_by_the_next_call(
    exported_graphs: list[bytes], exported_images: NDArray[np.float32]
) -> None:
    backend = OpenVinoBackend(exported_graphs, threads=1)
    (features,), logits_BC = backend.run(0, backend.start(exported_images[:3]))
    before = features.copy(), logits_BC.copy()
    backend.run(0, backend.start(exported_images[3:6]))
    assert np.array_equal(features, before[0])
    assert np.array_equal(logits_BC, before[1])


TWO_BACKENDS_AND_A_SIGNAL = """
import gc, signal, sys
from pathlib import Path
import numpy as np
from elfnet.inference.backends.openvino import OpenVinoBackend

shape = [int(word) for word in sys.argv[2:]]
backends = [OpenVinoBackend([Path(sys.argv[1])]) for _ in range(2)]
for backend in backends:
    backend.run(0, backend.start(np.zeros((1, *shape), np.float32)))
del backend
while backends:
    del backends[0]
    gc.collect()
signal.signal(signal.SIGUSR1, lambda *_: print("handled"))
signal.raise_signal(signal.SIGUSR1)
"""


def test_signals_are_handled_after_backends_that_ended_in_the_order_they_began(
    exported_graphs: list[bytes], exported_images: NDArray[np.float32], tmp_path: Path
) -> None:
    graph = tmp_path / "stage.onnx"
    graph.write_bytes(exported_graphs[0])
    shape = [str(size) for size in exported_images.shape[1:]]
    done = subprocess.run(
        [sys.executable, "-c", TWO_BACKENDS_AND_A_SIGNAL, str(graph), *shape],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "handled\n"), done.stderr
