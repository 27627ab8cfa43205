"""Early stopping and the best epoch: when a run ends, which weights it keeps, and that resuming changes nothing."""

from pathlib import Path
from typing import Any

import pytest
import torch

from elfnet.calibrate.run import calibrate_run
from elfnet.errors import RequestError
from elfnet.recipe.load import load_recipe
from elfnet.recipe.schema import Recipe
from elfnet.recipe.stages import stops_early
from elfnet.run.checkpoint import Checkpoint, is_finished, load_checkpoint
from elfnet.run.directory import RunDirectory
from elfnet.train import run as training
from elfnet.train.logging import Silent

SCORES = (0.2, 0.5, 0.4, 0.3, 0.9)
"""Calibration accuracy after each epoch; with a patience of 2 the fifth epoch is not trained."""


class Notes(Silent):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, text: str) -> None:
        self.lines.append(text)


@pytest.fixture(autouse=True)
def _scripted_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each epoch has the score of `SCORES`, whatever the weights."""
    run_epoch = training._Loop._run_epoch

    def with_score(loop: Any, stage: Any, assembled: Any, network: Any, state: Any) -> Any:
        monkeypatch.setattr(training._Loop, "_score", lambda *_: SCORES[state.epochs_done])
        return run_epoch(loop, stage, assembled, network, state)

    monkeypatch.setattr(training._Loop, "_run_epoch", with_score)


def recipe(tiny_settings: dict[str, Any], **settings: Any) -> Recipe:
    small = {**tiny_settings, "data.largest": 12, "train.drw_start": 0, "train.schedule": "cosine"}
    return load_recipe("digits/elf-ce", {**small, **settings})


def last(run: RunDirectory) -> Checkpoint:
    return load_checkpoint(run.checkpoint("last"))


def same(first: Any, second: Any) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def test_patience_is_counted_from_the_best_epoch(tiny_settings: dict[str, Any]) -> None:
    patient = recipe(tiny_settings, **{"train.patience": 2})
    assert [stops_early(patient, done, best) for done, best in ((1, -1), (3, 1), (4, 1), (4, 3))] == [
        False,
        False,
        True,
        False,
    ]
    assert not stops_early(recipe(tiny_settings), 5, 0)


@pytest.mark.slow
def test_a_run_stops_early_and_keeps_its_best_epoch(tiny_settings: dict[str, Any], tmp_path: Path) -> None:
    settings = recipe(tiny_settings, **{"train.patience": 2, "train.keep": "best"})
    notes = Notes()
    run = training.train_recipe(settings, tmp_path / "whole", observer=notes)
    (stopped,) = [line for line in notes.lines if "stopped early" in line]
    assert "after epoch 4/5: no better calibration accuracy since epoch 2 (train.patience=2)" in stopped
    assert "the cosine schedule is cut off at a learning rate of" in stopped
    saved, best = last(run), load_checkpoint(run.checkpoint("best"))
    assert (saved.epochs_done, best.epochs_done, len(run.log())) == (4, 2, 4)
    assert is_finished(settings, saved)
    assert same(saved.weights, best.weights)
    assert not same(saved.weights, saved.trained_weights)
    assert calibrate_run(run).checkpoint_sha256 == best.sha256
    # A finished run is not trained further.
    training.train_recipe(settings, run.root, resume=True, observer=Silent())
    assert last(run).epochs_done == 4

    parts = training.train_recipe(settings, tmp_path / "parts", observer=Silent(), stop_after=lambda done: done == 3)
    assert not is_finished(settings, last(parts))
    with pytest.raises(RequestError, match="has 3 of 5 epochs"):
        calibrate_run(parts)
    training.train_recipe(settings, parts.root, resume=True, observer=Silent())
    resumed = last(parts)
    assert same(resumed.weights, saved.weights)
    assert same(resumed.trained_weights, saved.trained_weights)
    assert same(resumed.optimiser, saved.optimiser)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"train.patience": 1, "train.evaluate_every": 2}, "train.patience=1 ends the training before the next"),
        ({"train.keep": "best", "train.ema_decay": 0.9}, "both choose the weights to evaluate"),
        ({"train.patience": 2, "refit.method": "balanced"}, "is for a training of one stage"),
    ],
)
def test_combinations_without_sense_are_refused(
    tiny_settings: dict[str, Any], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(RequestError, match=message):
        recipe(tiny_settings, **settings)
