"""Cross-fitting: no logits of a network that saw the example, resume in any fold, estimates without a promise."""

from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elfnet.calibrate.cross_fitting import cross_fitted_table
from elfnet.calibrate.family_request import RiskPoints, request_from_recipe
from elfnet.calibrate.run import calibrate_run, measure_run
from elfnet.data import build
from elfnet.data.build import load_splits
from elfnet.data.folds import hold_out_fold
from elfnet.data.sources.arrays import FeatureRows
from elfnet.data.splits import Splits
from elfnet.errors import RequestError, WorkError
from elfnet.evaluate.run import evaluate_run
from elfnet.export.run import export_run
from elfnet.inference.model import load
from elfnet.methods.mixing import MixedBatch
from elfnet.recipe.load import load_recipe
from elfnet.recipe.schema import Recipe
from elfnet.recipe.stages import recipes_of_folds
from elfnet.report import write_model_card, write_report
from elfnet.run.checkpoint import load_checkpoint
from elfnet.run.directory import RunDirectory
from elfnet.run.info import RunInfo
from elfnet.train.logging import Silent, epochs_later, network_number
from elfnet.train.loop import Trainer
from elfnet.train.run import train_recipe

Seen = dict[int, set[bytes]]


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    """Rows of three classes, the last of them rare, as they are: a row identifies its example in every batch."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(3), (40, 20, 6))
    rows = rng.normal(size=(66, 8)).astype(np.float32)
    rows[np.arange(66), labels] += 3
    np.savez(tmp_path / "rows.npz", X=rows, y=labels)
    settings: dict[str, Any] = {
        "data.train": str(tmp_path / "rows.npz"),
        "data.normalise": "none",
        "data.cross_fitting": 3,
        "train.epochs": 3,
        "train.batch_size": 16,
        "train.threads": 1,
        "train.compile": "off",
    }
    return load_recipe("features/joint-ce-drw", settings)


class _Fold(Silent):
    """Knows which network is trained."""

    fold = -1

    def started(self, recipe: Recipe, info: RunInfo, epochs_done: int) -> None:  # noqa: ARG002
        self.fold = recipe.data.fold


def train_and_watch(recipe: Recipe, out: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[RunDirectory, Seen]:
    """Train a run; returns the rows that each network saw in its steps, by fold, and 0 for the final network."""
    seen: Seen = defaultdict(set)
    watch, step = _Fold(), Trainer._step

    def spy(self: Trainer, batch: MixedBatch, *rest: Any) -> None:
        seen[watch.fold] |= {row.tobytes() for row in batch.images.reshape(len(batch.images), -1).numpy()}
        step(self, batch, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_step", spy)
        return train_recipe(recipe, out, observer=watch), seen


def require_unseen(run: RunDirectory, seen: Seen) -> None:
    """Fail if logits of the joined table are of a network that was trained on the example, or of none of the folds."""
    table = cross_fitted_table(run).table
    done = 0
    for fold, recipe in recipes_of_folds(run.recipe()).items():
        rows = load_splits(recipe.data).calibration
        assert isinstance(rows, FeatureRows)
        judged = [row.tobytes() for row in rows.features_NF]
        assert not seen[fold].intersection(judged), f"the network of fold {fold} was trained on what it judges"
        logits_NEC = evaluate_run(run.fold(fold), "calibration").logits_NEC
        np.testing.assert_array_equal(table.logits_NEC[done : done + len(judged)], logits_NEC)
        done += len(judged)
        assert seen[0].issuperset(judged), "the final network is trained on all examples"
    assert done == table.examples == run.info().data.train


def test_no_logits_come_from_a_network_that_saw_the_example(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, seen = train_and_watch(recipe, tmp_path / "run", monkeypatch)
    assert sorted(seen) == [0, 1, 2, 3]
    require_unseen(run, seen)


def test_a_leaked_example_is_noticed(recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def leak(splits: Splits, *, fold: int, **how: Any) -> Splits:
        held_out = hold_out_fold(splits, fold=fold, **how)
        if fold != 2:
            return held_out
        places = np.append(held_out.train_indices, held_out.calibration_indices[:1])  # type: ignore[index]
        return replace(held_out, train=splits.train.take(np.searchsorted(splits.train_indices, places)))

    monkeypatch.setattr(build, "hold_out_fold", leak)
    run, seen = train_and_watch(recipe, tmp_path / "run", monkeypatch)
    with pytest.raises(AssertionError, match="the network of fold 2 was trained on what it judges"):
        require_unseen(run, seen)


@pytest.mark.parametrize("stopped_after", [1, 5, 8, 11])
def test_a_stopped_run_resumes_in_the_network_where_it_was(recipe: Recipe, tmp_path: Path, stopped_after: int) -> None:
    whole = train_recipe(recipe, tmp_path / "whole", observer=Silent())
    done: list[int] = []

    def stop(epoch: int) -> bool:
        done.append(epoch)
        return len(done) == stopped_after

    train_recipe(recipe, tmp_path / "parts", observer=Silent(), stop_after=stop)
    resumed = train_recipe(recipe, tmp_path / "parts", resume=True, observer=Silent(), stop_after=stop)
    assert done == [1, 2, 3] * 4, "no epoch is trained twice or left out"
    for fold in (0, 1, 2, 3):
        first, second = (run.fold(fold) if fold else run for run in (whole, resumed))
        assert load_checkpoint(first.checkpoint("last")).sha256 == load_checkpoint(second.checkpoint("last")).sha256


def test_points_are_estimates_without_a_promise(recipe: Recipe, tmp_path: Path) -> None:
    run = train_recipe(recipe, tmp_path / "run", observer=Silent())
    family = calibrate_run(run)
    assert (family.split, family.n) == ("cross-fitting", run.info().data.train)
    assert not [name for name in family.names() if name.startswith(("risk", "within", "worst-group"))]
    assert family.notes[0].startswith("estimated by cross-fitting, no promise: points are chosen on ")
    assert "calibration images that they need per class: risk=0.01 274, risk=0.02 136," in family.notes[-1]
    held_out = family.point("budget=0.5").held_out
    assert held_out is not None
    assert held_out.low < held_out.accuracy < held_out.high
    measure_run(run, family)
    for file in (write_report([run]), write_model_card(run)):
        assert "training examples by cross-fitting (estimates, no promise)" in file.read_text()
    wanted = replace(request_from_recipe(recipe), risk=RiskPoints(epsilons=(0.05,), required=True))
    with pytest.raises(RequestError, match=r"by cross-fitting carry no promise; .* per class: risk=0.05 \d+,"):
        calibrate_run(run, wanted)


def test_a_network_that_is_missing_is_named_and_trained_by_resume(recipe: Recipe, tmp_path: Path) -> None:
    run = train_recipe(recipe, tmp_path / "run", observer=Silent())
    kept = load_checkpoint(run.fold(2).checkpoint("last")).sha256
    run.fold(2).remove()
    with pytest.raises(WorkError, match=r"network 2 of cross-fitting .* is not trained; finish it with: elfnet train"):
        calibrate_run(run)
    train_recipe(recipe, tmp_path / "run", resume=True, observer=Silent())
    assert load_checkpoint(run.fold(2).checkpoint("last")).sha256 == kept


def test_the_time_left_counts_the_networks_to_come(recipe: Recipe) -> None:
    second = recipes_of_folds(recipe)[2]
    # One more network of two thirds, and the final one, whose epochs are half as long again.
    assert epochs_later(second) == 3 * (1 + 1.5)
    assert (network_number(second), network_number(recipe)) == ("network 2/4, ", "network 4/4, ")
    assert epochs_later(recipe) == 0


@pytest.mark.slow
def test_the_run_is_exported(recipe: Recipe, tmp_path: Path) -> None:
    run = train_recipe(recipe, tmp_path / "run", observer=Silent())
    measure_run(run, calibrate_run(run))
    export_run(run, tmp_path / "run.onnx", measure_memory=None)
    assert set(load(tmp_path / "run.onnx").operating_points) == set(calibrate_run(run).names())
    with pytest.raises(RequestError, match="int8 needs calibration images to fit its thresholds on"):
        export_run(run, tmp_path / "small.onnx", precisions=["int8"])
