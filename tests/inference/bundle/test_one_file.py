"""A bundle that is one ONNX file: what it holds, what is cut out of it, and what is refused."""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime  # type: ignore[import-untyped]
import pytest
from numpy.typing import NDArray
from onnx import helper, numpy_helper

import elfnet
from elfnet.calibrate.point_family import Family
from elfnet.errors import RequestError, WorkError
from elfnet.export.assemble import assemble
from elfnet.inference.backends.onnxruntime import OnnxBackend
from elfnet.inference.bundle.one_file import FileManifest, open_one_file
from elfnet.inference.engine import Engine
from elfnet.inference.model import Model
from elfnet.inference.one_file_engine import OneFileEngine
from elfnet.inference.preprocess import Preprocess

pytestmark = pytest.mark.parametrize("exported_network", ["as if trained"], indirect=True)


@pytest.fixture
def pixels() -> NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, (30, 16, 16, 3), dtype=np.uint8)


def test_metadata_and_hash_are_found_with_onnx_too(
    write_file: Callable[..., Path], file_manifest: FileManifest
) -> None:
    path = write_file()
    bundle = open_one_file(path)
    assert bundle.manifest == file_manifest
    read = onnx.load(str(path))
    metadata = {entry.key: entry.value for entry in read.metadata_props}
    assert bundle.parts.metadata == metadata
    assert json.loads(metadata["elfnet:class_names"]) == list("abcde")
    assert metadata["elfnet:model_card"] == "# A card with ümlauts"
    content, own = path.read_bytes(), metadata["elfnet:sha256"].encode()
    assert content.count(own) == 1
    assert hashlib.sha256(content.replace(own, b"0" * 64)).hexdigest().encode() == own
    onnx.checker.check_model(read, full_check=True)


def test_one_call_and_the_stages_cut_out_of_the_file_agree(
    file_preprocess: Preprocess,
    write_file: Callable[..., Path],
    pixels: NDArray[np.uint8],
    exported_graphs: list[bytes],
    exported_family: Family,
) -> None:
    bundle = open_one_file(write_file())
    images = file_preprocess.normalise(pixels)
    stages, original = OnnxBackend(bundle.stage_graphs(), threads=1), OnnxBackend(exported_graphs, threads=1)
    features = [backend.start(images) for backend in (stages, original)]
    for k in range(4):
        logits = [backend.run(k, of)[1] for backend, of in zip((stages, original), features, strict=True)]
        assert np.array_equal(logits[0], logits[1])
        if k < 3:
            features = [
                backend.run_without_head(k, of) for backend, of in zip((stages, original), features, strict=True)
            ]
    engine, staged = OneFileEngine(bundle, threads=1), Engine(original, exported_family)
    taken = set()
    for point in exported_family.names():
        expected = staged(images, operating_point=point)
        by_images = engine(images, operating_point=point)
        for found in (engine.of_pixels(pixels, operating_point=point), by_images):
            assert found.exit_N.tolist() == expected.exit_N.tolist()
            assert found.prediction_N.tolist() == expected.prediction_N.tolist()
            assert found.confidence_N == pytest.approx(expected.confidence_N, abs=1e-5)
            assert found.cost_N == pytest.approx(expected.cost_N, abs=1e-6)
            assert found.probability_NC == pytest.approx(expected.probability_NC, abs=1e-5)
        taken |= set(expected.exit_N.tolist())
    assert len(taken) > 2


def test_a_model_reads_pixels_without_normalising_them(
    file_preprocess: Preprocess,
    write_file: Callable[..., Path],
    pixels: NDArray[np.uint8],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened = elfnet.load(write_file(), threads=1)
    expected = opened.engine(file_preprocess.normalise(pixels))

    def refused(_self: Preprocess, _pixels: object) -> None:
        raise AssertionError("the graph normalises")

    monkeypatch.setattr(Preprocess, "normalise", refused)
    opened.warm_up()
    assert isinstance(opened, Model)
    assert [answer.class_index for answer in opened.predict(pixels)] == expected.prediction_N.tolist()
    assert len(opened.engine(np.zeros((0, 3, 16, 16), np.float32)).exit_N) == 0


def test_thresholds_of_the_caller(
    write_file: Callable[..., Path], pixels: NDArray[np.uint8], exported_family: Family
) -> None:
    engine = OneFileEngine(open_one_file(write_file()), threads=1)
    first, second = (exported_family.points[i].policy for i in (1, 2))
    rows = np.array([first.thresholds, second.thresholds] * 15)
    found = engine.of_pixels(pixels, thresholds=rows)
    for start, policy in enumerate((first, second)):
        alone = engine.of_pixels(pixels, operating_point=policy.name)
        assert found.exit_N[start::2].tolist() == alone.exit_N[start::2].tolist()
        assert found.cost_N[start::2] == pytest.approx(alone.cost_N[start::2], abs=1e-6)
    everybody = engine.of_pixels(pixels, thresholds=np.zeros((1, 3)))
    assert set(everybody.exit_N.tolist()) == {0}
    for shape in ((3,), (2, 3), (30, 2), (1, 4)):
        with pytest.raises(RequestError, match=r"thresholds of shape .* are refused; the network needs") as caught:
            engine.of_pixels(pixels, thresholds=np.zeros(shape))
        assert "\n" not in str(caught.value)
    for wrong in (-0.1, 1.1, np.nan):
        with pytest.raises(RequestError, match="a threshold is not between 0 and 1"):
            engine.of_pixels(pixels, thresholds=np.full((1, 3), wrong))
    for kind in (np.array([["a", "b", "c"]]), np.full((1, 3), 0.5j)):
        with pytest.raises(RequestError, match="a threshold is not between 0 and 1"):
            engine.of_pixels(pixels, thresholds=kind)
    with pytest.raises(RequestError, match="the rows of thresholds differ in length; each needs 3"):
        engine.of_pixels(pixels, thresholds=[[0.5, 0.5], [0.5]])  # type: ignore[arg-type]


def test_the_cap_on_depth_holds_with_thresholds_of_the_caller(
    write_file: Callable[..., Path], pixels: NDArray[np.uint8]
) -> None:
    engine = OneFileEngine(open_one_file(write_file()), threads=1, deepest_exit=1)
    nobody_leaves = np.ones((1, 3))
    found = engine.of_pixels(pixels, thresholds=nobody_leaves)
    assert set(found.exit_N.tolist()) == {1}
    assert nobody_leaves.tolist() == [[1.0, 1.0, 1.0]]


def test_a_file_that_reads_normalised_images(
    write_file: Callable[..., Path],
    exported_graphs: list[bytes],
    exported_family: Family,
    pixels: NDArray[np.uint8],
    file_preprocess: Preprocess,
) -> None:
    expected = elfnet.load(write_file(), threads=1).classify(pixels, operating_point=exported_family.names()[1])
    other = assemble(exported_graphs, exported_family, image_input="float32", default_point=exported_family.names()[1])
    path = write_file(other, image_input="float32")
    opened = elfnet.load(path, threads=1)
    found = opened.classify(pixels, operating_point=exported_family.names()[1])
    assert found.exit_N.tolist() == expected.exit_N.tolist()
    assert np.array_equal(found.probability_NC, expected.probability_NC)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (exits,) = session.run(["exit"], {"images": file_preprocess.normalise(pixels)})
    assert (exits - 1).tolist() == expected.exit_N.tolist()


def test_images_of_another_shape_or_type(write_file: Callable[..., Path], pixels: NDArray[np.uint8]) -> None:
    engine = OneFileEngine(open_one_file(write_file()), threads=1)
    for wrong in (pixels[:, :8], pixels[..., :1], pixels[0], pixels.astype(np.float32)):
        with pytest.raises(RequestError, match=r"the network needs uint8 of shape \(examples, 16, 16, 3\)") as caught:
            engine.of_pixels(wrong)
        assert "\n" not in str(caught.value)
    no_array: Any = pixels.tolist()
    with pytest.raises(RequestError, match="images are list, the network needs uint8 of shape"):
        engine.of_pixels(no_array)
    with pytest.raises(RequestError, match="list is refused; give images as an array"):
        engine(no_array)


def refused(path: Path) -> str:
    with pytest.raises(WorkError) as caught:
        elfnet.load(path)
    message = str(caught.value)
    assert "\n" not in message
    assert str(path) in message
    return message


def test_changed_bytes_are_noticed(write_file: Callable[..., Path]) -> None:
    path = write_file()
    content = path.read_bytes()
    places = np.linspace(0, len(content) - 1, 40).astype(int)
    for place in places:
        changed = bytearray(content)
        changed[place] ^= 1
        path.write_bytes(changed)
        refused(path)
    for size in (0, 1, 100, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:size])
        refused(path)
    path.write_bytes(content + b"\x00")
    refused(path)


def test_what_is_not_ours(
    write_file: Callable[..., Path], file_model: onnx.ModelProto, file_manifest: FileManifest, tmp_path: Path
) -> None:
    path = tmp_path / "other.onnx"
    path.write_bytes(file_model.SerializeToString())
    assert "without elfnet's metadata" in refused(path)
    path.write_text("hello, this is a text")
    assert "is not an ONNX file" in refused(path)
    with pytest.raises(RequestError, match="there is no bundle"):
        elfnet.load(tmp_path / "nowhere.onnx")
    with pytest.raises(RequestError, match=r"unknown variant of .*'int8'"):
        elfnet.load(write_file(), variant="int8")
    with pytest.raises(RequestError, match="holds no torch network"):
        elfnet.load(write_file(), backend="torch")
    assert "format version 7, this elfnet reads 1; update elfnet" in refused(write_file(format_version=7))
    assert "the default point 'x' is not an operating point" in refused(write_file(default_point="x"))
    wrong = file_manifest.provenance.model_copy(update={"checkpoint_sha256": "1" * 64})
    assert "the operating points are not for this network" in refused(write_file(provenance=wrong))


def test_metadata_of_another_graph(
    write_file: Callable[..., Path], file_model: onnx.ModelProto, file_manifest: FileManifest
) -> None:
    other_size = file_manifest.preprocessing.model_copy(update={"height": 8})
    assert "the graph does not fit the metadata (see 'images')" in refused(write_file(preprocessing=other_size))
    wide = {**file_manifest.operating_points, "full": {"thresholds": (1.0,), "abstain_below": (0.0,)}}
    assert "operating_points.full does not fit the inputs thresholds" in refused(write_file(operating_points=wide))
    without = onnx.ModelProto()
    without.CopyFrom(file_model)
    [given] = [value for value in without.graph.input if value.name == "abstain_below"]
    without.graph.input.remove(given)
    assert "the graph does not fit the metadata (see 'abstain_below')" in refused(write_file(without))


def _external(model: onnx.ModelProto) -> None:
    tensor = model.graph.initializer[0]
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="/etc/passwd")


def _external_in_a_branch(model: onnx.ModelProto) -> None:
    branch = next(node for node in model.graph.node if node.op_type == "If").attribute[0].g
    branch.initializer[0].external_data.add(key="location", value="weights.bin")


def _external_in_a_constant(model: onnx.ModelProto) -> None:
    node = helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.zeros(1)))
    node.attribute[0].t.data_location = onnx.TensorProto.EXTERNAL
    model.graph.node.append(node)


def _custom_operator(model: onnx.ModelProto) -> None:
    model.graph.node[0].domain = "com.example"


def _unknown_domain(model: onnx.ModelProto) -> None:
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))


def _function(model: onnx.ModelProto) -> None:
    model.functions.add(name="f", domain="")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (_external, "keeps weights in another file"),
        (_external_in_a_branch, "keeps weights in another file"),
        (_external_in_a_constant, "keeps weights in another file"),
        (_custom_operator, "operators of the domain 'com.example'"),
        (_unknown_domain, "operators of the domain 'com.microsoft'"),
        (_function, "holds functions"),
    ],
)
def test_what_a_bundle_must_not_contain(
    file_model: onnx.ModelProto, tmp_path: Path, change: Callable[[onnx.ModelProto], None], expected: str
) -> None:
    changed = onnx.ModelProto()
    changed.CopyFrom(file_model)
    change(changed)
    path = tmp_path / "bad.onnx"
    path.write_bytes(changed.SerializeToString())
    assert expected in refused(path)


def test_images_of_different_points_share_a_call(
    write_file: Callable[..., Path], exported_family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each image gets the answer, exit and cost that it gets in a call at its own point."""
    model = elfnet.load(write_file(), threads=1)
    pixels = np.random.default_rng(5).integers(0, 256, (40, 16, 16, 3), dtype=np.uint8)
    names = exported_family.names()
    points = [names[i % len(names)] for i in range(len(pixels))]
    assert isinstance(model.engine, OneFileEngine)
    calls = []
    session, run = model.engine._session, model.engine._session.run

    def counted(images: NDArray[np.uint8], inputs: Mapping[str, NDArray[np.float32]]) -> list[Any]:
        calls.append(len(images))
        return run(images, inputs)

    monkeypatch.setattr(session, "run", counted)
    mixed = model.classify(pixels, operating_point=points)
    assert calls == [40]
    monkeypatch.undo()
    for name in set(points):
        rows = np.flatnonzero([name == other for other in points])
        alone = model.classify(pixels[rows], operating_point=name)
        together = mixed.take(rows)
        assert together.exit_N.tolist() == alone.exit_N.tolist()
        assert together.prediction_N.tolist() == alone.prediction_N.tolist()
        assert together.cost_N.tolist() == alone.cost_N.tolist()
        np.testing.assert_allclose(together.confidence_N, alone.confidence_N, atol=1e-5)
    with pytest.raises(RequestError, match="2 operating points for 40 images; give one, or one per image"):
        model.classify(pixels, operating_point=["full", "full"])
