"""Backends by name: only what exists, and only what it can do."""

import subprocess
import sys

import pytest

from elfnet.errors import RequestError
from elfnet.extras import install_command
from elfnet.inference.backends.build import BACKENDS, open_backend
from elfnet.models.staged import StagedNetwork


def _no_graphs() -> list[bytes]:
    raise AssertionError("nobody needs graphs here")


def _no_network() -> StagedNetwork:
    raise AssertionError("nobody needs a network here")


def test_names() -> None:
    assert BACKENDS.names() == ["onnxruntime", "openvino", "torch", "torch-compiled"]


@pytest.mark.parametrize(
    ("name", "precision", "threads", "message"),
    [
        ("onnx", "float32", None, "unknown backend 'onnx'.*onnxruntime, openvino, torch, torch-compiled"),
        ("onnxruntime", "bf16", None, "unknown precision 'bf16'.*float32, bfloat16"),
        ("onnxruntime", "bfloat16", None, "computes float32 only"),
        ("torch", "float32", 0, "threads=0 must be at least 1"),
    ],
)
def test_refused(name: str, precision: str, threads: int | None, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        open_backend(name, graphs=_no_graphs, network=_no_network, precision=precision, threads=threads)


@pytest.mark.parametrize(
    ("name", "missing", "extra"),
    [("openvino", "openvino", "openvino"), ("torch", "torch", "train"), ("torch-compiled", "torch", "train")],
)
def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, name: str, missing: str, extra: str) -> None:
    for module in ("openvino", "torch"):
        monkeypatch.delitem(sys.modules, f"elfnet.inference.backends.{module}", raising=False)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(RequestError) as caught:
        open_backend(name, graphs=_no_graphs, network=_no_network)
    assert f"needs {missing}: {install_command(extra)}" in str(caught.value)


@pytest.mark.parametrize("exported_network", ["as if trained"], indirect=True)
@pytest.mark.parametrize("name", ["onnxruntime", "openvino"])
def test_no_torch_and_no_onnx(name: str, exported_graphs: list[bytes]) -> None:
    """In a process of its own, as somebody with the base package would run it: all parts, none of them with torch."""
    program = f"""
import sys
import numpy as np
from elfnet.inference.backends.build import open_backend
lengths = {[len(graph) for graph in exported_graphs]}
graphs = [sys.stdin.buffer.read(length) for length in lengths]
backend = open_backend({name!r}, graphs=lambda: graphs, network=None, threads=1)
features = backend.start(np.zeros((3, 3, 16, 16), dtype=np.float32))
features = backend.run_without_head(0, features)
features, logits = backend.run(1, features)
assert logits.shape == (3, 5)
backend.keep(features, np.array([0, 2]))
found = sorted({{"torch", "onnx", "onnxscript"}} & sys.modules.keys())
assert not found, found
"""
    done = subprocess.run(
        [sys.executable, "-c", program], input=b"".join(exported_graphs), capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    assert done.stderr == b""
