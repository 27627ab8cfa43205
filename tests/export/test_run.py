"""A trained run becomes a bundle that answers as torch does, and that runs where there is no torch."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from run_files import change_json

import elfnet
from elfnet.calibrate.point_family import Family
from elfnet.data.build import load_splits
from elfnet.errors import RequestError, WorkError
from elfnet.evaluate.policy_replay import replay
from elfnet.evaluate.run import evaluate_run
from elfnet.export import run as module
from elfnet.export.onnx import export_stages
from elfnet.export.read_run import model_of_run
from elfnet.export.run import Exported, export_run
from elfnet.inference.bundle.manifest import PeakMemory
from elfnet.inference.bundle.peak_memory import peak_resident_bytes
from elfnet.models.staged import StagedNetwork
from elfnet.run.checkpoint import load_checkpoint
from elfnet.run.directory import RunDirectory

pytestmark = pytest.mark.usefixtures("_graphs_made_once")
ExportStages = Callable[[StagedNetwork, tuple[int, int, int]], list[bytes]]


@pytest.fixture
def run(trained_run: RunDirectory) -> RunDirectory:
    return trained_run


@pytest.fixture(scope="module")
def exported(_graphs_made_once: None, trained_run: RunDirectory, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return export_run(trained_run, tmp_path_factory.mktemp("bundles") / "tiny.onnx")


def test_the_file_is_hardly_larger_than_its_weights(run: RunDirectory, exported: Exported) -> None:
    weights = load_checkpoint(run.checkpoint("last")).weights
    numbers = sum(tensor.numel() for tensor in weights.values())
    assert 4 * numbers < exported.bytes_on_disk <= 1.05 * 4 * numbers + 256_000


def test_parity_and_accuracy_are_measured(run: RunDirectory, exported: Exported) -> None:
    measured = exported.manifest.variants["float32"].measured
    assert measured is not None
    assert measured.parity is not None
    table = evaluate_run(run, "calibration")
    family = Family.open(run.policy_file)
    assert measured.parity.images == table.examples == 60
    assert len(measured.parity.largest_difference) == 4
    assert all(0 < difference < 1e-4 for difference in measured.parity.largest_difference)
    for point in family.points:
        counts = measured.parity.points[point.name]
        assert counts.differ == counts.on_the_edge
        if point.name not in measured.parity.engine_points:
            assert point.name not in measured.accuracy
            continue
        right = replay(table, point.policy).prediction_N == table.labels_N
        assert measured.accuracy[point.name] == pytest.approx(right.mean(), abs=1e-9 + counts.differ / 60)


def test_peak_memory_is_of_a_process_without_torch(exported: Exported) -> None:
    measured = exported.manifest.variants["float32"].measured
    assert measured is not None
    assert measured.peak_memory is not None
    memory = measured.peak_memory
    assert memory.bytes is not None
    assert memory.before_loading is not None
    assert 20e6 < memory.before_loading < memory.bytes
    # This process has torch loaded; what was measured must not be its own size handed down.
    own = peak_resident_bytes()
    assert own is not None
    assert memory.bytes < own


@pytest.mark.parametrize("traced_again", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_same_run_gives_the_same_bytes(
    run: RunDirectory, exported: Exported, tmp_path: Path, traced_again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fixed(_bundle: Path) -> PeakMemory:
        return PeakMemory(batch=32, bytes=1, before_loading=1)

    shutil.copytree(run.root, tmp_path / "elsewhere")
    first = export_run(run, tmp_path / "a.onnx", measure_memory=fixed)
    if traced_again:
        monkeypatch.setattr(module, "export_stages", export_stages)
    second = export_run(RunDirectory(tmp_path / "elsewhere"), tmp_path / "b.onnx", measure_memory=fixed)
    assert first.path.read_bytes() == second.path.read_bytes()
    assert first.identity == exported.identity
    assert first.path.read_bytes() != exported.path.read_bytes()


def test_no_place_of_the_exporting_machine_is_in_it(run: RunDirectory, tmp_path: Path) -> None:
    whole = export_run(run, tmp_path / "a.onnx", measure_memory=None).path.read_bytes()
    for place in (str(run.root), str(tmp_path), str(Path(elfnet.__file__).parent), str(Path.home())):
        assert place == "/" or place.encode() not in whole


def test_the_loaded_model_answers_as_the_run(run: RunDirectory, exported: Exported) -> None:
    images = load_splits(run.recipe().data).test.images_NHWC
    bundled, direct = elfnet.load(exported.path, threads=1), model_of_run(run)
    assert list(bundled.operating_points) == list(direct.operating_points)
    assert bundled.class_names == direct.class_names
    for point in bundled.operating_points:
        ours = bundled.predict(images, operating_point=point)
        theirs = direct.predict(images, operating_point=point)
        same = [(a.label, a.exit, a.cost) == (b.label, b.exit, b.cost) for a, b in zip(ours, theirs, strict=True)]
        assert np.mean(same) >= 0.98  # the odd one may lie on the edge
        assert [a.confidence for a, s in zip(ours, same, strict=True) if s] == pytest.approx(
            [b.confidence for b, s in zip(theirs, same, strict=True) if s], abs=1e-4
        )


def test_settings_reach_the_engine(run: RunDirectory, exported: Exported) -> None:
    images = load_splits(run.recipe().data).test.images_NHWC[:20]
    for model in (elfnet.load(exported.path, deepest_exit=2, threads=1), model_of_run(run, deepest_exit=2)):
        assert {answer.exit for answer in model.predict(images)} == {2}
    sure = elfnet.load(exported.path, abstain_below=1.0, threads=1)
    assert {answer.label for answer in sure.predict(images)} == {None}
    for wrong in (0, 5):
        with pytest.raises(RequestError, match=f"deepest_exit={wrong} must be a whole number in 1..4"):
            elfnet.load(exported.path, deepest_exit=wrong)
    with pytest.raises(RequestError, match="unknown backend 'abacus'"):
        elfnet.load(exported.path, backend="abacus")


def test_arrays_of_another_shape_are_refused_by_every_backend(run: RunDirectory, exported: Exported) -> None:
    models = [
        elfnet.load(exported.path, threads=1),
        model_of_run(run, threads=1),
    ]
    for model in models:
        for shape in ((2, 1, 16, 32), (2, 3, 32, 32), (1, 32, 32)):
            with pytest.raises(RequestError) as caught:
                model.engine(np.zeros(shape, dtype=np.float32))
            expected = f"images of shape {shape} are refused; the network needs (examples, 1, 32, 32)"
            assert str(caught.value) == expected


WITHOUT_TORCH = """
import sys
for name in ("torch", "onnx", "onnxscript", "lightning_fabric", "sklearn", "matplotlib"):
    sys.modules[name] = None  # importing it fails, as where it is not installed
import elfnet
model = elfnet.load(sys.argv[1], threads=1)
model.set_operating_point("s=0.5")
(answer,) = model.predict(sys.argv[2])
from elfnet.cli.main import main
code = main(["predict", sys.argv[1], sys.argv[2], "--operating-point", "s=0.5"])
assert not [name for name in sys.modules if name.partition(".")[0] == "torch" and sys.modules[name] is not None]
print(answer.label, answer.exit, code)
"""

ONLY_LOOKED_AT = """
import sys
import elfnet
elfnet.load(sys.argv[1], threads=1).predict(sys.argv[2])
from elfnet.cli.main import main
main(["predict", sys.argv[1], sys.argv[2]])
print(sorted({name.partition(".")[0] for name in sys.modules} & {"torch", "onnx", "sklearn", "matplotlib", "openvino"}))
"""


def python(code: str, *arguments: object) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_bundle_needs_no_torch(run: RunDirectory, exported: Exported, tmp_path: Path) -> None:
    image = load_splits(run.recipe().data).test.images_NHWC[0, :, :, 0]
    Image.fromarray(image).save(tmp_path / "digit.png")
    (expected,) = elfnet.load(exported.path, threads=1).predict(image, operating_point="s=0.5")
    line, last = python(WITHOUT_TORCH, exported.path, tmp_path / "digit.png")
    assert last == f"{expected.label} {expected.exit} 0"
    assert json.loads(line)["label"] == expected.label
    # Where torch is installed, it is not imported either.
    assert python(ONLY_LOOKED_AT, exported.path, tmp_path / "digit.png")[-1] == "[]"


@pytest.fixture
def copy(run: RunDirectory, tmp_path: Path) -> RunDirectory:
    shutil.copytree(run.root, tmp_path / "copy")
    return RunDirectory(tmp_path / "copy")


def test_the_default_place(copy: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(copy.root)
    assert export_run(RunDirectory(Path()), measure_memory=None).path == Path("copy.onnx")
    with pytest.raises(RequestError, match=r"copy.onnx exists; give --overwrite"):
        export_run(copy)
    export_run(copy, overwrite=True, measure_memory=None)


def _another_policy(run: RunDirectory) -> None:
    change_json(run.policy_file, lambda content: content.update(checkpoint_sha256="0" * 64))


def _other_data(run: RunDirectory) -> None:
    recipe = run.recipe_file.read_text()
    run.recipe_file.write_text(recipe.replace("subset_seed = 0", "subset_seed = 1"))


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (lambda run: run.policy_file.unlink(), "calibrate the run first"),
        (_another_policy, "the operating points are of checkpoint 000000000000"),
        (_other_data, "the data is not what the run"),
        (lambda run: run.checkpoint("last").unlink(), "no checkpoint"),
    ],
)
def test_runs_that_cannot_be_exported(copy: RunDirectory, spoil: Callable[[RunDirectory], None], expected: str) -> None:
    spoil(copy)
    with pytest.raises(WorkError, match=expected):
        export_run(copy)
    assert not list(copy.root.glob("*.onnx"))


def test_graphs_that_do_not_answer_as_torch_are_not_written(
    copy: RunDirectory, export_once: ExportStages, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One number in the graph of the third stage is changed a little."""
    export_run(copy, measure_memory=None)
    before = (copy.root / "copy.onnx").read_bytes()

    def wrong(network: StagedNetwork, shape: tuple[int, int, int]) -> list[bytes]:
        graphs = export_once(network, shape)
        bias = network.state_dict()["heads.2.classifier.bias"].numpy()
        assert graphs[2].count(bias.tobytes()) == 1
        graphs[2] = graphs[2].replace(bias.tobytes(), (bias + np.float32(0.05)).tobytes())
        return graphs

    monkeypatch.setattr(module, "export_stages", wrong)
    with pytest.raises(WorkError, match=r"logits of exit 3 by 0\.05"):
        export_run(copy, overwrite=True)
    assert (copy.root / "copy.onnx").read_bytes() == before
    assert sorted(path.name for path in copy.root.iterdir() if path.name.startswith(".")) == []
