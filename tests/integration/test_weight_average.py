"""A run with a moving average of its weights: the average is what is kept, evaluated and resumed."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from elfnet.evaluate.run import evaluate_run
from elfnet.recipe.schema import Recipe
from elfnet.run.checkpoint import load_checkpoint, tensors_sha256
from elfnet.run.directory import RunDirectory
from elfnet.train.run import train_recipe


def _averaged(tiny: Callable[..., Recipe]) -> Recipe:
    return tiny(train__ema_decay=0.9, train__schedule="cosine", train__optimizer="adamw", train__lr=0.01)


@pytest.mark.slow
def test_the_average_does_not_change_the_training(tiny: Callable[..., Recipe], tmp_path: Path) -> None:
    averaged = train_recipe(_averaged(tiny), tmp_path / "averaged")
    plain = train_recipe(tiny(train__schedule="cosine", train__optimizer="adamw", train__lr=0.01), tmp_path / "plain")
    last, other = (load_checkpoint(run.checkpoint("last")) for run in (averaged, plain))
    assert tensors_sha256(last.trained_weights) == other.sha256
    assert last.sha256 != other.sha256
    assert not other.trained_weights
    # Only the training needs the weights that are averaged.
    assert not load_checkpoint(averaged.checkpoint("best")).trained_weights


@pytest.mark.slow
def test_resumed_equals_uninterrupted(tiny: Callable[..., Recipe], tmp_path: Path) -> None:
    recipe = _averaged(tiny)
    whole = train_recipe(recipe, tmp_path / "whole")
    train_recipe(recipe, tmp_path / "parts", stop_after=lambda done: done == 2)
    parts = train_recipe(recipe, tmp_path / "parts", resume=True)
    one, two = (load_checkpoint(run.checkpoint("last")) for run in (whole, parts))
    for part in ("weights", "trained_weights", "optimiser"):
        assert tensors_sha256(getattr(one, part)) == tensors_sha256(getattr(two, part)), part
    assert _without_time(whole) == _without_time(parts)


def test_the_average_is_what_is_evaluated(tiny: Callable[..., Recipe], tmp_path: Path) -> None:
    """The score in the log is that of the exit table, which is computed from the kept weights alone."""
    run = train_recipe(_averaged(tiny), tmp_path / "run")
    table = evaluate_run(run, "calibration")
    right_N = table.logits_NEC[:, -1].argmax(axis=1) == table.labels_N
    score = np.mean([right_N[table.labels_N == label].mean() for label in np.unique(table.labels_N)])
    assert abs(run.log()[-1].calibration_balanced_accuracy - score) < 1e-9
    last = load_checkpoint(run.checkpoint("last"))
    assert table.checkpoint_sha256 == last.sha256
    assert not all(torch.equal(last.weights[name], value) for name, value in last.trained_weights.items())


def _without_time(run: RunDirectory) -> list[dict[str, object]]:
    return [{key: value for key, value in record.to_json().items() if key != "seconds"} for record in run.log()]
