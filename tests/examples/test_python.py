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


def test_it_has_fifteen_lines() -> None:
    lines = EXAMPLE.read_text().partition('"""\n')[2].splitlines()
    assert sum(bool(line.strip()) for line in lines) <= 15
