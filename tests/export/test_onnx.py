"""Graphs of stages: what is in them, that nothing else is, and that the network stays as it was."""

import logging
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime  # type: ignore[import-untyped]
import pytest
import torch
from torch import Tensor, nn

import elfnet
from elfnet.errors import RequestError
from elfnet.export import onnx as onnx_export
from elfnet.export.onnx import export_stages
from elfnet.models.staged import StagedNetwork, evaluation_mode


def test_inputs_and_outputs(exported_graphs: list[bytes], exported_network: StagedNetwork) -> None:
    shapes = []
    for graph in exported_graphs:
        session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
        shapes.append([(value.name, value.shape) for value in (*session.get_inputs(), *session.get_outputs())])
    logits, shared = ("logits", ["batch", 5]), ["batch", 32, 8, 8]
    assert shapes[:3] == [
        [("features", ["batch", 3, 16, 16]), ("next_features", ["batch", 16, 16, 16]), logits],
        [("features", ["batch", 16, 16, 16]), ("next_features", ["batch", 16, 16, 16]), logits],
        [("features", ["batch", 16, 16, 16]), ("next_features", shared), logits],
    ]
    if exported_network.experts == 1:
        assert shapes[3:] == [[("features", shared), logits]]
        return
    passed_on = [("next_features_0", shared), ("next_features_1", ["batch", 5])]
    read = [("features_0", shared), ("features_1", ["batch", 5])]
    assert shapes[3:] == [[("features", shared), *passed_on, logits], [*read, *passed_on, logits], [*read, logits]]


def test_nothing_of_this_machine_and_no_batch_norm(exported_graphs: list[bytes]) -> None:
    places = [Path(elfnet.__file__).parent, Path(torch.__file__).parent, Path(sys.prefix), Path.cwd(), Path.home()]
    for graph in exported_graphs:
        for place in places:
            assert os.fsencode(place) not in graph
        assert b".py" not in graph
        model = onnx.ModelProto.FromString(graph)
        assert [entry.key for entry in model.metadata_props] == ["elfnet.stage"]
        assert not any(node.metadata_props or node.doc_string for node in model.graph.node)
        assert not any(node.op_type == "BatchNormalization" for node in model.graph.node)
        assert [entry.version for entry in model.opset_import] == [onnx_export.OPSET]


class _Pair(nn.Module):
    """One tensor to two, through a batch norm."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        features = torch.relu(self.norm(self.conv(images)))
        return features, features[:, :, ::2, ::2]


class _Joined(nn.Module):
    """Two tensors to one; the fine one is added to something, the coarse one is not."""

    def forward(self, features: tuple[Tensor, Tensor]) -> Tensor:
        fine, coarse = features
        return (fine + 1.0).mean(dim=(2, 3)) * coarse.amax(dim=(2, 3))


class _OnCoarse(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 5)

    def forward(self, features: tuple[Tensor, Tensor]) -> Tensor:
        logits: Tensor = self.linear(features[1].mean(dim=(2, 3)))
        return logits


def _small_network() -> StagedNetwork:
    torch.manual_seed(0)
    return StagedNetwork([_Pair(), _Joined()], [_OnCoarse(), nn.Linear(4, 5)], classes=5)


@pytest.fixture(scope="module")
def small_network() -> StagedNetwork:
    return _small_network()


@pytest.fixture(scope="module")
def small_graphs(small_network: StagedNetwork) -> list[bytes]:
    return export_stages(small_network, (3, 6, 6))


def test_several_tensors_between_stages(small_network: StagedNetwork, small_graphs: list[bytes]) -> None:
    first, second = (onnxruntime.InferenceSession(g, providers=["CPUExecutionProvider"]) for g in small_graphs)
    names = ["next_features_0", "next_features_1", "logits"]
    assert [value.name for value in first.get_outputs()] == names
    assert [value.name for value in second.get_inputs()] == ["features_0", "features_1"]
    for examples in (1, 4):
        images = torch.randn(examples, 3, 6, 6, generator=torch.Generator().manual_seed(0))
        fine, coarse, logits = first.run(names, {"features": images.numpy()})
        (last,) = second.run(["logits"], {"features_0": fine, "features_1": coarse})
        with torch.no_grad(), evaluation_mode(small_network):
            expected = small_network.logits(images).numpy()
        assert np.stack([logits, last]) == pytest.approx(expected, abs=1e-5)


@pytest.mark.slow
def test_same_bytes_and_the_network_stays_as_it_was(
    small_graphs: list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    """Neither mode, nor layout, nor what was exported before is seen in the bytes."""
    network = _small_network()
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    network.train()
    network.stages[0].eval()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    modes = [(type(module), module.training) for module in network.modules()]
    with caplog.at_level(logging.WARNING):
        assert export_stages(network, (3, 6, 6)) == small_graphs
    assert caplog.messages == []
    assert [(type(module), module.training) for module in network.modules()] == modes
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())
    assert network.stages[0].conv.weight.is_contiguous(memory_format=torch.channels_last)  # type: ignore[union-attr,operator]


def test_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_export, "MAX_GRAPH_BYTES", 400)

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("refused only after the work")

    monkeypatch.setattr(torch.onnx, "export", never)
    with pytest.raises(RequestError, match=r"stage 0 and its head have .* GB of weights.*can hold 2 GB"):
        export_stages(_small_network(), (3, 6, 6))
