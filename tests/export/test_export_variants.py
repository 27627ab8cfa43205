"""Other precisions of a run: made from what they really compute, and refused where they are worth nothing."""

# Shapes: N images, E exits, C classes

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from numpy.typing import NDArray

import elfnet
from elfnet.calibrate.family_request import FamilyRequest
from elfnet.calibrate.fit_points import fit_family
from elfnet.calibrate.point_family import Family
from elfnet.data.build import load_splits
from elfnet.data.loading.normalise import Normalisation
from elfnet.errors import RequestError
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.run import evaluate_run
from elfnet.export import run as export_module
from elfnet.export import variants as module
from elfnet.export.assemble import assemble
from elfnet.export.onnx import export_stages
from elfnet.export.read_run import open_parts, split_images
from elfnet.export.run import export_run
from elfnet.export.variants import MadeVariant, make_variant, quantise_stages, require_worth_it, time_ratio
from elfnet.inference.backends.onnxruntime import OnnxBackend
from elfnet.inference.bundle.manifest import AgainstFloat32
from elfnet.inference.bundle.one_file import open_one_file
from elfnet.inference.engine import Engine, all_exit_logits
from elfnet.models.build import build_network
from elfnet.models.staged import StagedNetwork
from elfnet.run.directory import RunDirectory

Graphs = list[bytes]


@pytest.fixture(scope="module")
def run(trained_run: RunDirectory) -> RunDirectory:
    return trained_run


@pytest.fixture(scope="module")
def graphs(run: RunDirectory, export_once: Callable[[StagedNetwork, tuple[int, int, int]], Graphs]) -> Graphs:
    parts = open_parts(run)
    height, width, channels = parts.preprocess.shape
    return export_once(parts.network, (channels, height, width))


@pytest.fixture
def make(run: RunDirectory, graphs: Graphs) -> Callable[[str], MadeVariant]:
    preprocess = open_parts(run).preprocess
    normalisation = Normalisation(preprocess.mean, preprocess.std)
    return lambda precision: make_variant(run, precision, graphs, load_splits(run.recipe().data), normalisation)


@pytest.fixture
def always_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """On sixty images one is more than a point, and tiny networks are no quicker in integers."""
    monkeypatch.setattr(module, "MAX_POINTS_LOST", 100.1)
    monkeypatch.setattr(module, "time_ratio", lambda *_: 0.75)


def _calibration_logits(run: RunDirectory, graphs: Graphs) -> NDArray[np.float32]:
    # Fewer than the most: all of them, in their order.
    return all_exit_logits(OnnxBackend(graphs), split_images(run, "calibration"))


@pytest.mark.slow
@pytest.mark.usefixtures("always_worth_it")
def test_int8_is_measured_on_what_it_computes(make: Callable[[str], MadeVariant], run: RunDirectory) -> None:
    made = make("int8")
    assert made.graphs is not None
    assert len(made.graphs) == 4
    logits_NEC = _calibration_logits(run, made.graphs)
    table = evaluate_run(run, "calibration")
    assert not np.allclose(logits_NEC, table.logits_NEC, atol=1e-3)
    right_N = logits_NEC[:, -1].argmax(axis=1) == table.labels_N
    against = made.against_float32
    assert (against.images, against.backend) == (60, "onnxruntime")
    assert against.accuracy == pytest.approx(right_N.mean())
    assert against.accuracy_float32 == pytest.approx((table.logits_NEC[:, -1].argmax(axis=1) == table.labels_N).mean())
    assert against.time_ratio == {"1": 0.75, "32": 0.75}
    request = FamilyRequest(search=run.recipe().exits.search)
    assert made.family == fit_family(replace(table, logits_NEC=logits_NEC), request)
    assert made.family != fit_family(table, request)


@pytest.mark.slow
@pytest.mark.usefixtures("always_worth_it")
def test_a_bundle_with_int8(run: RunDirectory, graphs: Graphs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_module, "export_stages", lambda *_: graphs)
    exported = export_run(run, tmp_path / "both.onnx", precisions=["int8"], measure_memory=None)
    assert exported.int8 is not None
    path = tmp_path / "both-int8.onnx"
    assert exported.int8.path == path
    assert exported.path.stat().st_size > path.stat().st_size
    assert (exported.manifest.precision, exported.int8.manifest.precision) == ("float32", "int8")
    measured = exported.int8.manifest.variants["int8"].measured
    assert measured is not None
    assert measured.against_float32 is not None
    assert measured.parity is None
    images = split_images(run, "test")
    small = elfnet.load(path, threads=1)
    quantised = OnnxBackend(open_one_file(path).stage_graphs(), threads=1)
    expected = all_exit_logits(quantised, images)[:, -1]
    assert small.engine(images, operating_point="full").prediction_N.tolist() == expected.argmax(axis=1).tolist()
    plain = all_exit_logits(OnnxBackend(graphs, threads=1), images)[:, -1]
    assert np.abs(plain - expected).max() > 1e-3
    for point in small.engine.family.names():
        staged = Engine(quantised, small.engine.family)(images, operating_point=point)
        assert (small.engine(images, operating_point=point).exit_N == staged.exit_N).mean() > 0.98
    with pytest.raises(RequestError, match=r"unknown variant of .*: 'float32'; choose from: int8"):
        elfnet.load(path, variant="float32")


@pytest.mark.slow
def test_int8_of_a_network_that_pools_opens(
    make_table: Callable[[StagedNetwork, NDArray[np.float32]], ExitTable],
    make_family: Callable[[ExitTable], Family],
    tmp_path: Path,
) -> None:
    torch.manual_seed(0)
    network = build_network("resnet9", classes=5).eval()
    images = np.random.default_rng(0).standard_normal((50, 3, 16, 16), dtype=np.float32)
    graphs = quantise_stages(export_stages(network, (3, 16, 16)), images)
    model = assemble(graphs, make_family(make_table(network, images)), image_input="float32", default_point="full")
    path = tmp_path / "int8.onnx"
    onnx.save(model, path)
    # With a maximum that is not quantised, ONNX Runtime ends the process.
    opened = f"import onnxruntime; onnxruntime.InferenceSession({str(path)!r}, providers=['CPUExecutionProvider'])"
    subprocess.run([sys.executable, "-c", opened], check=True)


def test_int8_that_is_slower_is_refused_and_nothing_is_written(
    run: RunDirectory, graphs: Graphs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_module, "export_stages", lambda *_: graphs)
    monkeypatch.setattr(module, "MAX_POINTS_LOST", 100.1)
    monkeypatch.setattr(module, "time_ratio", lambda _own, _plain, images: 1.25 if len(images) == 1 else 0.5)
    with pytest.raises(RequestError) as caught:
        export_run(run, tmp_path / "a.onnx", precisions=["int8"])
    expected = "int8 takes 1.25 times the processor time of float32 at batch 1; export without --int8"
    assert str(caught.value) == expected
    assert list(tmp_path.iterdir()) == []


def test_int8_that_loses_is_refused(
    make: Callable[[str], MadeVariant], run: RunDirectory, graphs: Graphs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In place of the integers: graphs that always give one class. Float32 is taken to be always right."""
    table = evaluate_run(run, "calibration")
    right_N = table.logits_NEC[:, -1].argmax(axis=1)
    monkeypatch.setattr(module, "evaluate_run", lambda *_, **__: replace(table, labels_N=right_N))
    share_C = np.bincount(right_N, minlength=10) / len(right_N)
    bias_C = open_parts(run).network.state_dict()["heads.3.classifier.bias"].numpy()
    assert graphs[3].count(bias_C.tobytes()) == 1
    one_class_C = (bias_C + 1000 * (np.arange(10) == share_C.argmin())).astype(np.float32)
    spoilt = [*graphs[:3], graphs[3].replace(bias_C.tobytes(), one_class_C.tobytes())]
    monkeypatch.setattr(module, "quantise_stages", lambda *_: spoilt)
    monkeypatch.setattr(module, "time_ratio", lambda *_: 0.5)
    lost = 100 * (1 - share_C.min())
    with pytest.raises(RequestError) as caught:
        make("int8")
    expected = f"int8 loses {lost:.2f} points of accuracy on 60 calibration images, the limit is 0.5"
    assert str(caught.value) == f"{expected}; export without --int8"


@pytest.mark.parametrize(
    ("accuracy", "ratios", "refused"),
    [
        (0.7001, {"1": 1.0, "32": 0.4}, None),
        (0.7100, {"1": 0.9, "32": 0.9}, None),
        (0.6951, {"1": 0.9, "32": 0.9}, None),
        (0.6949, {"1": 0.9, "32": 0.9}, r"loses 0\.51 points of accuracy on 2000 calibration images"),
        (0.7, {"1": 0.5, "32": 1.02}, r"takes 1\.02 times the processor time of float32 at batch 32"),
        (0.7, {"1": 1.3, "32": 1.02}, r"takes 1\.30 times the processor time of float32 at batch 1;"),
    ],
)
def test_where_the_line_is(accuracy: float, ratios: dict[str, float], refused: str | None) -> None:
    against = AgainstFloat32(
        images=2000, accuracy=accuracy, accuracy_float32=0.7, time_ratio=ratios, backend="onnxruntime"
    )
    if refused is None:
        require_worth_it(against)
        return
    with pytest.raises(RequestError, match=refused) as caught:
        require_worth_it(against)
    assert "\n" not in str(caught.value)


class Noting:
    """Three stages that do nothing, and note what is asked of them."""

    exits = 3

    def __init__(self) -> None:
        self.calls: list[str] = []

    def start(self, images_BKHW: NDArray[np.float32]) -> NDArray[np.float32]:
        return images_BKHW

    def run(self, k: int, features: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        self.calls.append(f"with head {k}")
        return features, features[:, 0, 0]

    def run_without_head(self, k: int, features: NDArray[np.float32]) -> NDArray[np.float32]:
        self.calls.append(f"alone {k}")
        return features

    def keep(self, features: NDArray[np.float32], stay: NDArray[np.int64]) -> NDArray[np.float32]:
        return features[stay]


def test_the_ratio_is_that_of_full_depth_within_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    own, plain = Noting(), Noting()
    images = np.zeros((2, 1, 1, 2), dtype=np.float32)

    def turns(
        calls: dict[str, Callable[[], object]], *, rounds: int, clock: Callable[[], float]
    ) -> dict[str, list[float]]:
        assert (rounds, clock) == (3, time.process_time)
        for call in calls.values():
            call()
        return {"own": [1.0, 8.0, 3.0], "reference": [2.0, 10.0, 4.0]}

    monkeypatch.setattr(module, "taking_turns", turns)
    assert time_ratio(own, plain, images, rounds=3) == statistics.median([0.5, 0.8, 0.75])
    assert own.calls == plain.calls == ["alone 0", "alone 1", "with head 2"]


@pytest.fixture(scope="module")
def openvino_backend() -> ModuleType:
    """Imported before a test begins, since OpenVINO leaves a thread behind."""
    pytest.importorskip("openvino")
    return import_module("elfnet.inference.backends.openvino")


@pytest.fixture
def processor_with(openvino_backend: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """As if OpenVINO had found these abilities."""
    core = openvino_backend.CORE

    def pretend(*abilities: str) -> None:
        class Pretending:
            def get_property(self, device: str, name: str) -> Any:
                return list(abilities) if name == "OPTIMIZATION_CAPABILITIES" else core.get_property(device, name)

            def __getattr__(self, name: str) -> Any:
                return getattr(core, name)

        monkeypatch.setattr(openvino_backend, "CORE", Pretending())

    return pretend


def test_bfloat16_is_refused_where_there_is_none(
    make: Callable[[str], MadeVariant], processor_with: Callable[..., None]
) -> None:
    processor_with("FP32", "INT8")
    with pytest.raises(RequestError, match="this processor does not support bfloat16") as caught:
        make("bfloat16")
    assert "\n" not in str(caught.value)


def test_bfloat16_has_the_graphs_of_float32_and_points_of_its_own(
    make: Callable[[str], MadeVariant], processor_with: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    processor_with("FP32", "BF16")
    monkeypatch.setattr(module, "time_ratio", lambda *_: 2.0)
    made = make("bfloat16")
    assert made.graphs is None
    assert (made.against_float32.backend, made.against_float32.images) == ("openvino", 60)
    assert made.family.point("full").expected.accuracy == pytest.approx(made.against_float32.accuracy)


def test_unknown_precision(make: Callable[[str], MadeVariant]) -> None:
    with pytest.raises(RequestError, match="no precision 'int4' to export; choose from: int8, bfloat16"):
        make("int4")
