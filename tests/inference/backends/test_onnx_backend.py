"""What is particular to ONNX Runtime: damaged graphs, and the head that is really not computed."""

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from elfnet.errors import WorkError
from elfnet.inference.backends import onnxruntime as onnx_backend
from elfnet.inference.backends.onnxruntime import OnnxBackend
from elfnet.inference.bundle.stage_graph import PLACE

pytestmark = pytest.mark.parametrize("exported_network", ["as if trained"], indirect=True)


def test_damaged_graph(exported_graphs: list[bytes], capfd: pytest.CaptureFixture[str]) -> None:
    for damaged in (b"", b"no graph at all", exported_graphs[1][:3000]):
        with pytest.raises(WorkError, match=r"cannot read the graph of stage 1 .*; export it again") as caught:
            OnnxBackend([exported_graphs[0], damaged])
        assert "\n" not in str(caught.value)
    # ONNX Runtime itself says nothing beside.
    assert capfd.readouterr() == ("", "")


def test_a_graph_that_is_not_a_stage(exported_graphs: list[bytes]) -> None:
    other = exported_graphs[0].replace(b"logits", b"Logits")
    with pytest.raises(WorkError, match=r"outputs .*Logits.*; export it again"):
        OnnxBackend([other])


def test_files(exported_graphs: list[bytes], exported_images: NDArray[np.float32], tmp_path: Path) -> None:
    files = [tmp_path / f"stage-{k}.onnx" for k in range(4)]
    with pytest.raises(WorkError, match=r"cannot read the graph .*stage-0.onnx: No such file"):
        OnnxBackend(files)
    for file, graph in zip(files, exported_graphs, strict=True):
        file.write_bytes(graph)
    images = exported_images[:4]
    _, logits_BC = OnnxBackend(exported_graphs, threads=1).run(0, [images])
    assert np.array_equal(OnnxBackend(files, threads=1).run(0, [images])[1], logits_BC)


def test_head_is_not_computed(
    exported_graphs: list[bytes],
    exported_images: NDArray[np.float32],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """ONNX Runtime's own record of what it ran."""
    make_options = onnx_backend.session_options

    def with_profile(threads: int | None) -> object:
        options = make_options(threads)
        options.enable_profiling = True
        options.profile_file_prefix = str(tmp_path / "profile")
        return options

    monkeypatch.setattr(onnx_backend, "session_options", with_profile)
    backend = OnnxBackend(exported_graphs, threads=1)
    features = backend.start(exported_images[:3])
    backend.run_without_head(0, features)
    backend.run(0, features)
    sessions = {"alone": backend._stages[0].without_head(), "with head": backend._stages[0].session}
    ran = {}
    for name, session in sessions.items():
        record = json.loads(Path(session.end_profiling()).read_text())
        ran[name] = [entry["args"]["op_name"] for entry in record if entry["cat"] == "Node"]
    for stage in backend._stages[1:]:
        stage.session.end_profiling()
    # The last node of a head is its classifier; the stem is one convolution and its head two more.
    assert any(operation in ("Gemm", "FusedGemm") for operation in ran["with head"])
    assert not any(operation in ("Gemm", "FusedGemm") for operation in ran["alone"])
    assert sum("Conv" in operation for operation in ran["with head"]) == 3
    assert sum("Conv" in operation for operation in ran["alone"]) == 1


def test_a_graph_that_does_not_say_where_its_head_begins(exported_graphs: list[bytes]) -> None:
    graph = exported_graphs[0].replace(PLACE.encode(), b"x" * len(PLACE))
    backend = OnnxBackend([graph], threads=1)
    with pytest.raises(WorkError, match="does not say where its head begins; export it again"):
        backend.run_without_head(0, [np.zeros((1, 3, 16, 16), dtype=np.float32)])
