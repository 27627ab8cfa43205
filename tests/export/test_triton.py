"""A model repository for Triton: its configuration is valid and fits the graphs."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime  # type: ignore[import-untyped]
import pytest
from google.protobuf import text_format  # type: ignore[import-untyped]

from elfnet.errors import RequestError
from elfnet.export.triton import WITH_POINT, write_repository
from elfnet.inference.bundle.one_file import OneFile, open_one_file, verified, without_defaults

TYPES = {"tensor(uint8)": "TYPE_UINT8", "tensor(float)": "TYPE_FP32", "tensor(int64)": "TYPE_INT64"}
pytestmark = pytest.mark.parametrize("exported_network", ["as if trained"], indirect=True)


@pytest.fixture(scope="module")
def model_config() -> Any:
    """Triton's own message. Only this file of its client is imported: the rest needs gRPC."""
    package = importlib.util.find_spec("tritonclient")
    if package is None or not package.submodule_search_locations:
        pytest.skip("tritonclient is not installed")
    path = Path(package.submodule_search_locations[0]) / "grpc" / "model_config_pb2.py"
    spec = importlib.util.spec_from_file_location("triton_model_config", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def bundle(write_file: Callable[..., Path]) -> OneFile:
    return open_one_file(write_file())


def test_the_configuration_fits_the_graph(bundle: OneFile, tmp_path: Path, model_config: Any) -> None:
    places = write_repository(bundle, tmp_path / "repository", "digits")
    assert [place.name for place in places] == ["digits", "digits" + WITH_POINT]
    for place in places:
        parsed = text_format.Parse((place / "config.pbtxt").read_text(), model_config.ModelConfig())
        assert parsed.name == place.name
        assert parsed.max_batch_size > 1
        assert parsed.HasField("dynamic_batching")
        session = onnxruntime.InferenceSession(str(place / "1" / "model.onnx"), _quiet())
        kinds = model_config.DataType

        def described(tensor: Any, kinds: Any = kinds) -> tuple[str, list[int], str]:
            shape = tensor.reshape.shape if tensor.HasField("reshape") else tensor.dims
            return tensor.name, list(shape), kinds.Name(tensor.data_type)

        for configured, found in ((parsed.input, session.get_inputs()), (parsed.output, session.get_outputs())):
            # Triton compares all dimensions but the batch, and refuses optional inputs where it batches.
            wanted = [(value.name, value.shape[1:], TYPES[value.type]) for value in found]
            assert [described(tensor) for tensor in configured] == wanted
        assert not any(tensor.optional for tensor in parsed.input)
        assert len(parsed.input) == (1 if place.name == "digits" else 3)
        assert (place / "labels.txt").read_text().split() == list("abcde")


def test_required_inputs_give_the_same_answers(bundle: OneFile) -> None:
    content = without_defaults(bundle)
    assert not verified(bundle.path, content).has_defaults
    pixels = np.random.default_rng(0).integers(0, 256, (9, 16, 16, 3), dtype=np.uint8)
    defaults = onnxruntime.InferenceSession(bundle.content, _quiet())
    required = onnxruntime.InferenceSession(content, _quiet())
    point = bundle.manifest.operating_points[bundle.manifest.default_point]
    given = {name: np.array([values], np.float32) for name, values in point.items()}
    for one, other in zip(
        defaults.run(None, {"images": pixels}), required.run(None, {"images": pixels, **given}), strict=True
    ):
        assert np.array_equal(one, other)


def test_what_is_refused(bundle: OneFile, tmp_path: Path) -> None:
    write_repository(bundle, tmp_path / "repository", "digits")
    with pytest.raises(RequestError, match="exists; give --overwrite"):
        write_repository(bundle, tmp_path / "repository", "digits")
    write_repository(bundle, tmp_path / "repository", "digits", overwrite=True)
    with pytest.raises(RequestError, match="no name for a Triton model"):
        write_repository(bundle, tmp_path / "repository", "a b")
    with pytest.raises(RequestError, match="has no default inputs, which Triton needs"):
        write_repository(verified(bundle.path, without_defaults(bundle)), tmp_path / "repository", "other")


def _quiet() -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    return options
