"""The graph for browsers gives the answers of the file that it is made from."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime  # type: ignore[import-untyped]
import pytest

from elfnet.export.browser_graph import optimised
from elfnet.inference.backends.onnxruntime import session_options
from elfnet.inference.bundle.one_file import OneFile, hash_of, open_one_file, without_defaults
from elfnet.inference.graph_inputs import PointInputs
from elfnet.inference.model import load

with_bundle = pytest.mark.parametrize("exported_network", ["as if trained"], indirect=True)


@pytest.fixture
def bundle(write_file: Callable[..., Path]) -> OneFile:
    return open_one_file(write_file())


@with_bundle
def test_the_optimised_graph_gives_the_answers_of_the_file(bundle: OneFile) -> None:
    model = load(bundle.path, threads=1)
    pixels_NHWK = np.random.default_rng(0).integers(0, 256, (40, *model.preprocess.shape), dtype=np.uint8)
    options = session_options(1)
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(optimised(bundle), options, providers=["CPUExecutionProvider"])
    inputs = PointInputs.of(bundle.family)
    exits = set()
    for point in bundle.family.points:
        expected = model.classify(pixels_NHWK, operating_point=point.name)
        for i, pixels_HWK in enumerate(pixels_NHWK):
            feeds = {"images": pixels_HWK[None], **inputs.values(point.policy)}
            found, confidence, _, exit_number, cost = session.run(None, feeds)
            assert (found[0], exit_number[0] - 1) == (expected.prediction_N[i], expected.exit_N[i])
            assert (confidence[0], cost[0]) == pytest.approx((expected.confidence_N[i], expected.cost_N[i]), abs=1e-5)
        exits |= set(expected.exit_N.tolist())
    assert len(exits) > 1


@with_bundle
def test_the_optimised_file_is_small_and_has_the_metadata(bundle: OneFile) -> None:
    content = optimised(bundle)
    model, plain = (onnx.ModelProto.FromString(each) for each in (content, without_defaults(bundle)))
    found, expected = ({entry.key: entry.value for entry in each.metadata_props} for each in (model, plain))
    own = found.pop("elfnet:sha256")
    assert own == hash_of(content, content.index(own.encode()))
    assert {**found, "elfnet:sha256": expected["elfnet:sha256"]} == expected
    # The weights are in it once, and the path for batches is not.
    assert len(content) < 1.02 * len(bundle.content)
    assert onnx.ModelProto.FromString(content).graph.input[0].type.tensor_type.shape.dim[0].dim_value == 1
    assert content.count(b"Compress") == 0 < bundle.content.count(b"Compress")
