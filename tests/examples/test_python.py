"""The Python example needs ONNX Runtime and Pillow alone, and answers as elfnet does."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from elfnet.calibrate.line_search import fixed_points
from elfnet.data.build import load_splits
from elfnet.data.types import LabelledImages
from elfnet.evaluate.run import evaluate_run
from elfnet.export.run import export_run
from elfnet.inference.bundle.one_file import open_one_file, sealed
from elfnet.inference.bundle.protobuf import MODEL_GRAPH, encode
from elfnet.inference.model import load
from elfnet.run.directory import RunDirectory

EXAMPLE = Path(__file__).parents[2] / "examples" / "python" / "classify.py"
WITHOUT_ELFNET = """
import runpy, sys
for name in ("elfnet", "torch", "onnx", "pydantic"):
    sys.modules[name] = None  # importing it fails, as where it is not installed
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0])
"""


@pytest.fixture(scope="module")
def bundle(
    _graphs_made_once: None, trained_run: RunDirectory, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path]:
    """A file, and an image of its test split."""
    place = tmp_path_factory.mktemp("example")
    run = RunDirectory(shutil.copytree(trained_run.root, place / "run"))
    fixed_points(evaluate_run(run, "calibration"), [0.0, 0.15]).save(run.policy_file)
    test = load_splits(run.recipe().data).test
    assert isinstance(test, LabelledImages)
    Image.fromarray(test.images_NHWC[0, :, :, 0]).save(place / "digit.png")
    return export_run(run, place / "digits.onnx", measure_memory=None).path, place / "digit.png"


@pytest.mark.parametrize("point", ["", "full", "s=0"])
def test_it_answers_as_elfnet_does(bundle: tuple[Path, Path], point: str) -> None:
    model, image = bundle
    words = [sys.executable, "-c", WITHOUT_ELFNET, str(EXAMPLE), str(model), str(image), *([point] if point else [])]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    opened = load(model, threads=1)
    (expected,) = opened.predict(image, operating_point=point or "s=0.15")
    label, confidence, _, number = done.stdout.split()
    assert (label, int(number)) == (expected.label, expected.exit)
    assert float(confidence) == pytest.approx(expected.confidence, abs=1e-5)
    assert point != "s=0" or number == "1"
    assert np.isfinite(expected.confidence)


@pytest.mark.parametrize("name", ["wide.png", "high.png"])
def test_it_cuts_and_resizes_as_elfnet_does(bundle: tuple[Path, Path], name: str, tmp_path: Path) -> None:
    size = {"wide.png": (60, 40), "high.png": (33, 70)}[name]
    pixels = np.random.default_rng(0).integers(0, 256, size[::-1], dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / name)
    closer = tmp_path / "closer.onnx"
    opened = open_one_file(bundle[0])
    plain = opened.parts.header + encode(MODEL_GRAPH, bytes(opened.parts.graph))
    for changes in ({}, {"crop_share": 0.8}, {"resize": "squash-bilinear"}):
        preprocessing = opened.manifest.preprocessing.model_copy(update=changes)
        closer.write_bytes(sealed(plain, opened.manifest.model_copy(update={"preprocessing": preprocessing})))
        done = subprocess.run(
            [sys.executable, str(EXAMPLE), str(closer), str(tmp_path / name), "full"],
            capture_output=True,
            text=True,
            check=True,
        )
        (expected,) = load(closer, threads=1).predict(tmp_path / name, operating_point="full")
        label, confidence, _, _ = done.stdout.split()
        assert label == expected.label
        assert float(confidence) == pytest.approx(expected.confidence, abs=1e-5)


def test_it_has_fifteen_lines() -> None:
    lines = EXAMPLE.read_text().partition('"""\n')[2].splitlines()
    assert sum(bool(line.strip()) for line in lines) <= 15
