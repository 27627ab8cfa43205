"""The JavaScript example answers as the Python engine does, and stops as early."""

# Shapes: N images, H height, W width, K channels

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from elfnet.calibrate.line_search import measured_point
from elfnet.calibrate.point_family import Family
from elfnet.data.build import load_splits
from elfnet.data.types import LabelledImages
from elfnet.evaluate.policy_replay import compute_confidences
from elfnet.evaluate.run import evaluate_run
from elfnet.exits.logit_adjustment import LogitAdjustment
from elfnet.exits.policy import Policy
from elfnet.export.run import export_run
from elfnet.inference.bundle.one_file import open_one_file
from elfnet.inference.model import load
from elfnet.run.directory import RunDirectory

EXAMPLE = Path(__file__).parents[2] / "examples" / "javascript"
NODE = shutil.which("node")
NEAR = 1e-4
"""Whoever comes this close to a threshold may leave at another exit."""

pytestmark = [
    pytest.mark.skipif(NODE is None, reason="node is not installed"),
    pytest.mark.skipif(
        not (EXAMPLE / "node_modules" / "onnxruntime-node").is_dir(),
        reason="onnxruntime-node is not installed: run 'npm ci --ignore-scripts' in examples/javascript",
    ),
]


@pytest.fixture(scope="module")
def run(trained_run: RunDirectory, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A trained run with a point for each thing that a policy can ask for."""
    trained = RunDirectory(shutil.copytree(trained_run.root, tmp_path_factory.mktemp("runs") / "tiny"))
    table = evaluate_run(trained, "calibration")
    scale = (2.0, 3.0, 1.5, 1.0)
    alone, together = compute_confidences(table, scale), compute_confidences(table, scale, combine=True)

    def thresholds(confidence_NE: NDArray[np.float64]) -> tuple[float, float, float]:
        """Some leave at each exit: of all examples a third is above the first, half above the second threshold."""
        first, second, third = (float(np.quantile(confidence_NE[:, k], (2 / 3, 1 / 2, 1 / 3)[k])) for k in range(3))
        return first, second, third

    first, _, third = thresholds(alone.confidence_NE)
    points = [
        measured_point(alone, Policy("thirds", thresholds(alone.confidence_NE), scale), rule="fixed"),
        measured_point(alone, Policy("second head not run", (first, 1.0, third), scale), rule="fixed"),
        measured_point(alone, Policy("full", (1.0, 1.0, 1.0), scale), rule="full depth"),
        measured_point(alone, Policy("first", (0.0, 0.5, 0.5), scale), rule="fixed"),
        measured_point(together, Policy("mean", thresholds(together.confidence_NE), scale, combine=True), rule="fixed"),
    ]
    by_entropy = compute_confidences(table, scale, measure="entropy")
    points.append(
        measured_point(by_entropy, by_entropy.policy("entropy", thresholds(by_entropy.confidence_NE)), rule="fixed")
    )
    log_prior = tuple(np.log(table.class_counts_C / table.class_counts_C.sum()).tolist())
    adjusted = compute_confidences(replace(table, adjustment=LogitAdjustment((0.5, 0.0, 1.0, 0.2), log_prior)), scale)
    points.append(
        measured_point(adjusted, adjusted.policy("adjusted", thresholds(adjusted.confidence_NE)), rule="fixed")
    )
    Family.of(table, points, confidence_scale=scale).save(trained.policy_file)
    return trained


@pytest.fixture(scope="module")
def bundle(_graphs_made_once: None, run: RunDirectory, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundles") / "tiny.onnx"
    return export_run(run, path, default_point="thirds", required_inputs=True, measure_memory=None).path


@pytest.fixture(scope="module")
def images(run: RunDirectory) -> NDArray[np.uint8]:
    splits = load_splits(run.recipe().data)
    assert isinstance(splits.test, LabelledImages)
    return splits.test.images_NHWC


def javascript(*words: str | Path) -> subprocess.CompletedProcess[str]:
    assert NODE is not None
    return subprocess.run([NODE, *map(str, words)], cwd=EXAMPLE, capture_output=True, text=True, timeout=120)


def answers(bundle: Path, pixels_NHWK: NDArray[np.uint8], file: Path, *point: str) -> list[dict[str, Any]]:
    file.write_bytes(pixels_NHWK.tobytes())
    done = javascript("classify.mjs", bundle, file, *point)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("point", ["thirds", "second head not run", "full", "first", "mean", "entropy", "adjusted"])
def test_answers_as_python_does(bundle: Path, images: NDArray[np.uint8], tmp_path: Path, point: str) -> None:
    found = answers(bundle, images, tmp_path / "pixels", point)
    model = load(bundle, threads=1)
    expected = model.predict(images, operating_point=point)
    assert len(found) == len(expected) == len(images) > 50
    policy = model.operating_points[point].policy
    near = 0
    for ours, theirs in zip(expected, found, strict=True):
        close = any(abs(ours.confidence - threshold) < NEAR for threshold in policy.thresholds)
        near += close
        if close:
            continue
        assert (theirs["class"], theirs["exit"]) == (ours.label, ours.exit)
        assert theirs["confidence"] == pytest.approx(ours.confidence, abs=NEAR)
        assert theirs["cost"] == pytest.approx(ours.cost, abs=1e-6)
    assert near <= len(images) // 10, "hardly any may be excused"
    wanted = {"full": {4}, "first": {1}, "second head not run": {1, 3, 4}}.get(point, {1, 2, 3, 4})
    assert {theirs["exit"] for theirs in found} == wanted


def test_default_point(bundle: Path, images: NDArray[np.uint8], tmp_path: Path) -> None:
    file = tmp_path / "pixels"
    assert answers(bundle, images[:7], file) == answers(bundle, images[:7], file, "thirds")


def test_wrong_requests(bundle: Path, images: NDArray[np.uint8], tmp_path: Path) -> None:
    file = tmp_path / "pixels"
    file.write_bytes(images[:2].tobytes())
    done = javascript("classify.mjs", bundle, file, "furst")
    assert done.returncode != 0
    assert "unknown operating point 'furst'; choose from: thirds, second head not run" in done.stderr
    file.write_bytes(images[:2].tobytes()[:-1])
    done = javascript("classify.mjs", bundle, file)
    assert done.returncode != 0
    assert f"has {images[:2].size - 1} bytes; give {images[0].size} for every L image" in done.stderr


def test_metadata_is_that_of_python(bundle: Path) -> None:
    script = (
        'import { readFileSync } from "node:fs"; import { readMetadata } from "./metadata.mjs";'
        f"console.log(JSON.stringify(readMetadata(readFileSync({json.dumps(str(bundle))}))));"
    )
    done = javascript("--input-type=module", "--eval", script)
    assert json.loads(done.stdout) == open_one_file(bundle).parts.metadata


def test_the_example_has_forty_lines() -> None:
    assert len((EXAMPLE / "classify.mjs").read_text().splitlines()) <= 40
