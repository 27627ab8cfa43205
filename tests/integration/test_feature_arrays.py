"""Training on feature arrays: rare codes among many features, on the staged perceptron, by the shipped recipe."""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime  # type: ignore[import-untyped]
import pytest
from numpy.typing import NDArray

from elfnet.calibrate.run import calibrate_run, measure_run
from elfnet.cli.main import main
from elfnet.errors import RequestError
from elfnet.export.read_run import model_of_run
from elfnet.export.run import export_run
from elfnet.inference.bundle.one_file import open_one_file
from elfnet.inference.model import Model, load
from elfnet.recipe import Recipe
from elfnet.recipe.load import load_recipe
from elfnet.run.checkpoint import load_checkpoint
from elfnet.train.run import train_recipe


def recipe_and_rows(place: Path) -> tuple[Recipe, NDArray[np.float32]]:
    """Records of four classes, and the shipped recipe for them."""
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.repeat(np.arange(4), (120, 60, 40, 30)))
    codes = rng.poisson(0.2, (250, 60)).astype(np.float32)
    codes[np.arange(250), labels * 3] += 4
    np.savez(place / "records.npz", X=codes, y=labels, patient=np.arange(250) // 2)
    settings: dict[str, Any] = {
        "data.train": str(place / "records.npz"),
        "data.group_column": "patient",
        "data.cross_fitting": 0,
        "train.epochs": 10,
        "train.batch_size": 16,
        "train.lr": 0.01,  # steady on so few rows: at 0.05 the accuracy depends on the rounding of the processor
        "train.threads": 1,
        "train.compile": "off",
    }
    # Joint training: so easy are these records that under ELF all leave at the first exit, and none train the last.
    return load_recipe("features/joint-ce-drw", settings), codes


def test_health_records_are_trained_calibrated_and_measured(tmp_path: Path) -> None:
    recipe, _ = recipe_and_rows(tmp_path)
    run = train_recipe(recipe, tmp_path / "whole")
    results = measure_run(run, calibrate_run(run))
    assert results.points["full"].accuracy > 0.9
    assert run.info().data.image_shape == (1, 1, 60)
    train_recipe(recipe, tmp_path / "parts", stop_after=lambda done: done == 6)
    parts = train_recipe(recipe, tmp_path / "parts", resume=True)
    assert load_checkpoint(parts.checkpoint("last")).sha256 == load_checkpoint(run.checkpoint("last")).sha256


@pytest.mark.slow
def test_the_run_is_exported(tmp_path: Path) -> None:
    """One ONNX file whose input is the rows as they are in the data; it answers as torch does."""
    recipe, codes_NF = recipe_and_rows(tmp_path)
    run = train_recipe(recipe, tmp_path / "run")
    calibrate_run(run)
    path = export_run(run, tmp_path / "records.onnx").path
    model, torch_model = load(path, threads=1), model_of_run(run)
    for point in ("full", "economic"):
        expected = torch_model.classify(codes_NF, operating_point=point)
        found = model.classify(codes_NF, operating_point=point)
        assert found.exit_N.tolist() == expected.exit_N.tolist()
        assert found.prediction_N.tolist() == expected.prediction_N.tolist()
        np.testing.assert_allclose(found.confidence_N, expected.confidence_N, atol=1e-4)
    session = onnxruntime.InferenceSession(str(path))
    assert [(value.name, value.shape) for value in session.get_inputs()] == [("features", ["batch", 60])]
    predicted, *_ = session.run(["class"], {"features": codes_NF})
    default = open_one_file(path).manifest.default_point
    assert predicted.tolist() == model.classify(codes_NF, operating_point=default).prediction_N.tolist()
    # Rows of integers and lists are rows, too; other shapes, images and NaN are refused.
    model.set_operating_point("full")
    assert [one.class_index for one in model.predict(codes_NF[:2].astype(int))] == found_at_full(model, codes_NF[:2])
    assert len(model.predict(codes_NF[0])) == len(model.predict(codes_NF[0].tolist())) == 1
    for message, wrong in {
        "row of 60 features; give numbers": codes_NF[:, :59],
        "a feature is not finite": np.full((1, 60), np.nan),
    }.items():
        with pytest.raises(RequestError, match=message):
            model.predict(wrong)
    with pytest.raises(RequestError, match=r"rows are float64 of shape \(250, 60\), the network needs float32"):
        model.classify(codes_NF.astype(np.float64))
    triton = ["export", str(run.root), "--overwrite", "--triton", str(tmp_path / "models")]
    before = path.read_bytes()
    for words in (["predict", str(path), "cat.png"], ["serve", str(path)], triton):
        assert main(words) == 2
    # Refused before the export, not after it.
    assert path.read_bytes() == before
    assert not (run.root / "run.onnx").exists()
    with pytest.raises(RequestError, match="feature rows, not on images; leave out --image-input"):
        export_run(run, tmp_path / "other.onnx", image_input="float32")


def found_at_full(model: Model, rows: NDArray[np.float32]) -> list[int]:
    found: list[int] = model.classify(rows, operating_point="full").prediction_N.tolist()
    return found
