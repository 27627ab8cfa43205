"""Graphs in 8-bit integers: what is in them, that they are cut as before, and that they answer nearly alike."""

# Shapes: N images, C classes

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from elfnet.export.variants import quantise_stages
from elfnet.inference.backends.onnxruntime import OnnxBackend
from elfnet.inference.engine import all_exit_logits
from elfnet.models.staged import StagedNetwork

RANGE_IMAGES = 130
"""Two full batches and a small one."""

pytestmark = pytest.mark.parametrize("exported_network", ["as if trained", "with experts"], indirect=True)


@pytest.fixture(scope="module")
def quantised(exported_graphs: list[bytes], exported_images: NDArray[np.float32]) -> list[bytes]:
    return quantise_stages(exported_graphs, exported_images[:RANGE_IMAGES])


def test_the_form_stays(quantised: list[bytes], exported_graphs: list[bytes]) -> None:
    for made, given in zip(quantised, exported_graphs, strict=True):
        new, old = onnx.ModelProto.FromString(made).graph, onnx.ModelProto.FromString(given).graph
        assert [value.name for value in new.input] == [value.name for value in old.input]
        assert [value.name for value in new.output] == [value.name for value in old.output]
        types = {value.type.tensor_type.elem_type for value in (*new.input, *new.output)}
        assert types == {onnx.TensorProto.FLOAT}
        assert len(made) < len(given)


def test_convolutions_are_integers_and_the_classifier_is_not(
    quantised: list[bytes], exported_graphs: list[bytes]
) -> None:
    for made, given in zip(quantised, exported_graphs, strict=True):
        new, old = onnx.ModelProto.FromString(made).graph, onnx.ModelProto.FromString(given).graph
        kinds = {tensor.name: tensor.data_type for tensor in new.initializer}
        made_by = {output: node for node in new.node for output in node.output}
        convolutions = [node for node in new.node if node.op_type == "Conv"]
        assert len(convolutions) == sum(node.op_type == "Conv" for node in old.node) > 0
        for node in convolutions:
            features, weight = (made_by[name] for name in node.input[:2])
            assert features.op_type == weight.op_type == "DequantizeLinear"
            assert kinds[weight.input[0]] == onnx.TensorProto.INT8
        products = [node for node in new.node if node.op_type in ("Gemm", "MatMul")]
        assert len(products) == 1
        assert onnx.TensorProto.FLOAT in {kinds.get(name) for name in products[0].input}


def test_sums_of_logits_are_not_integers(quantised: list[bytes], exported_network: StagedNetwork) -> None:
    added = []
    for made in quantised:
        graph = onnx.ModelProto.FromString(made).graph
        made_by = {output: node.op_type for node in graph.node for output in node.output}
        added += [{made_by.get(name, "input") for name in node.input} for node in graph.node if node.op_type == "Add"]
    of_logits = [sources for sources in added if sources == {"input", "Gemm"}]
    assert len(of_logits) == exported_network.experts - 1
    assert all(sources == {"DequantizeLinear"} for sources in added if sources not in of_logits)


def test_answers_are_nearly_those_of_float32(
    quantised: list[bytes], exported_graphs: list[bytes], exported_images: NDArray[np.float32]
) -> None:
    images = exported_images[RANGE_IMAGES : RANGE_IMAGES + 200]
    expected_NEC = all_exit_logits(OnnxBackend(exported_graphs, threads=1), images)
    found_NEC = all_exit_logits(OnnxBackend(quantised, threads=1), images)
    difference_E = np.abs(found_NEC - expected_NEC).mean(axis=(0, 2)) / expected_NEC.std(axis=(0, 2))
    assert (difference_E < 0.1).all(), difference_E
    assert (difference_E > 0).all()
    assert (found_NEC.argmax(axis=2) == expected_NEC.argmax(axis=2)).mean() > 0.95


def test_the_stage_alone_is_the_stage(quantised: list[bytes], exported_images: NDArray[np.float32]) -> None:
    backend = OnnxBackend(quantised, threads=1)
    features = backend.start(exported_images[:9])
    for k in range(backend.exits - 1):
        alone = backend.run_without_head(k, features)
        features, _ = backend.run(k, features)
        assert all(np.allclose(a, b, atol=1e-5) for a, b in zip(alone, features, strict=True))


def test_ranges_come_from_the_images_given(
    quantised: list[bytes], exported_graphs: list[bytes], exported_images: NDArray[np.float32]
) -> None:
    """Ranges of faint images cut strong ones off; and the same images give the same graphs."""
    faint = quantise_stages(exported_graphs[:1], exported_images[:RANGE_IMAGES] * np.float32(0.01))
    images = exported_images[:50]
    (expected,), (good,), (bad,) = (
        OnnxBackend(graphs, threads=1).run_without_head(0, [images]) for graphs in (exported_graphs, quantised, faint)
    )
    assert np.abs(bad - expected).mean() > 5 * np.abs(good - expected).mean()
    assert quantise_stages(exported_graphs[:1], exported_images[:RANGE_IMAGES]) == quantised[:1]
