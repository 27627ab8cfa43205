"""Training on feature arrays: rare codes among many features, on the staged perceptron, by the shipped recipe."""

from pathlib import Path
from typing import Any

import numpy as np

from elfnet.calibrate.run import calibrate_run, measure_run
from elfnet.recipe.load import load_recipe
from elfnet.run.checkpoint import load_checkpoint
from elfnet.train.run import train_recipe


def test_health_records_are_trained_calibrated_and_measured(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.repeat(np.arange(4), (120, 60, 40, 30)))
    codes = rng.poisson(0.2, (250, 60)).astype(np.float32)
    codes[np.arange(250), labels * 3] += 4
    np.savez(tmp_path / "records.npz", X=codes, y=labels, patient=np.arange(250) // 2)
    settings: dict[str, Any] = {
        "data.train": str(tmp_path / "records.npz"),
        "data.group_column": "patient",
        "train.epochs": 10,
        "train.batch_size": 16,
        "train.threads": 1,
        "train.compile": "off",
    }
    # Joint training: so easy are these records that under ELF all leave at the first exit, and none train the last.
    recipe = load_recipe("features/joint-ce-drw", settings)
    run = train_recipe(recipe, tmp_path / "whole")
    results = measure_run(run, calibrate_run(run))
    assert results.points["full"].accuracy > 0.9
    assert run.info().data.image_shape == (1, 1, 60)
    train_recipe(recipe, tmp_path / "parts", stop_after=lambda done: done == 6)
    parts = train_recipe(recipe, tmp_path / "parts", resume=True)
    assert load_checkpoint(parts.checkpoint("last")).sha256 == load_checkpoint(run.checkpoint("last")).sha256
