"""Whole runs: a golden trajectory, the log, options that do what they claim, and direct runs against replay."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from run_files import change_json

from elfnet.data.build import load_splits
from elfnet.data.loading.feed import EvaluationFeed
from elfnet.data.loading.memory import PlainSource
from elfnet.data.loading.normalise import Normalisation
from elfnet.evaluate.policy_replay import compute_confidences, replay
from elfnet.evaluate.run import evaluate_run
from elfnet.exits.policy import uniform_policy
from elfnet.models.build import network_of
from elfnet.recipe.schema import Recipe
from elfnet.run.checkpoint import load_checkpoint
from elfnet.run.directory import RunDirectory
from elfnet.run.info import Machine, Seeds
from elfnet.train.machine import bfloat16_is_native
from elfnet.train.run import train_recipe


def test_golden_trajectory(trained: RunDirectory) -> None:
    """Recorded once; processors differ in the last digits, and those grow from epoch to epoch."""
    losses = [record.loss for record in trained.log()]
    golden = json.loads((Path(__file__).parent / "golden_trajectory.json").read_text())
    assert losses[:3] == pytest.approx(golden["loss"][:3], rel=0.02)
    assert losses[3] < 0.9 * losses[0]


def test_log_has_what_a_user_needs(trained: RunDirectory) -> None:
    for epoch, record in enumerate(trained.log()):
        assert record.epoch == epoch
        assert sum(record.exit_share) == pytest.approx(1)
        assert record.increasing_loss in ("holds", "does not hold", "undefined")
        assert len(record.loss_by_exit) == 4
        assert 0 <= (record.low_confidence_head_loss_share or 0) <= 1
        assert 0 <= (record.high_confidence_tail_loss_share or 0) <= 1
        assert record.calibration_balanced_accuracy is not None
        assert 0 <= record.calibration_balanced_accuracy <= 1
    assert trained.log()[0].learning_rate > trained.log()[-1].learning_rate


def test_run_says_how_it_was_made(trained: RunDirectory) -> None:
    info = trained.info()
    assert info.versions["torch"] == torch.__version__
    assert info.seeds == Seeds(subset=0, class_order=-1, training=0)
    assert len(info.data.fingerprint) == 64
    precision = info.machine.precision
    assert info.machine == Machine(device="cpu", precision=precision, compile=False, channels_last=True, threads=1)


@pytest.fixture(scope="module")
def first_loss(tiny: Callable[..., Recipe], tmp_path_factory: pytest.TempPathFactory) -> float:
    """Loss of the first epoch, at a threshold at which examples leave from the start."""
    out = tmp_path_factory.mktemp("reference") / "run"
    run = train_recipe(tiny(exits__train_threshold="0.2"), out, stop_after=lambda done: done == 1)
    return float(run.log()[0].loss)


@pytest.mark.parametrize(
    "override",
    [
        {"exits__rule": "all"},
        {"exits__train_threshold": "0.9"},
        {"exits__train_confidence_scale": 3},
        {"criterion__loss": "focal"},
        {"criterion__reweight": "inverse", "train__drw_start": 0},
        {"data__subset_seed": 1},
        {"data__class_order_seed": 1},
        {"data__augment": "none"},
        {"data__pad": 2},
        {"model__head": "cosine"},
        {"model__head_stride": 1},
        {"train__weight_decay": 0.1},
        {"train__momentum": 0.0},
        {"train__warmup_epochs": 100},
        {"train__precision": "float32" if bfloat16_is_native("cpu") else "bfloat16"},
    ],
    ids=lambda override: next(iter(override)),
)
def test_every_option_changes_training(
    tiny: Callable[..., Recipe], first_loss: float, tmp_path: Path, override: dict[str, Any]
) -> None:
    settings = {"exits__train_threshold": "0.2", **override}
    changed = train_recipe(tiny(**settings), tmp_path / "run", stop_after=lambda done: done == 1)
    assert changed.log()[0].loss != first_loss


def test_thresholds_of_the_rule_decide_who_leaves(tiny: Callable[..., Recipe], tmp_path: Path) -> None:
    never = train_recipe(tiny(exits__train_threshold="1"), tmp_path / "never", stop_after=lambda done: done == 1)
    early = train_recipe(tiny(exits__train_threshold="0"), tmp_path / "early", stop_after=lambda done: done == 1)
    assert never.log()[0].exit_share == (0, 0, 0, 1)
    assert never.log()[0].increasing_loss == "undefined"
    assert early.log()[0].exit_share[0] > 0


def test_direct_run_equals_replay(trained: RunDirectory) -> None:
    """Stage by stage with a real decision, one image at a time, against the table."""
    table = evaluate_run(trained, "test")
    recipe = trained.recipe()
    splits = load_splits(recipe.data)
    network = network_of(recipe.model, classes=10, image_channels=1)
    network.load_state_dict(dict(load_checkpoint(trained.checkpoint("last")).weights))
    network.eval()
    source = PlainSource(splits.test.images_NHWC, Normalisation.of(splits.train), device=torch.device("cpu"))
    images = EvaluationFeed(source, len(splits.test), batch_size=1)
    # A threshold that really divides them.
    middle = float(np.median(compute_confidences(table).confidence_NE[:, 1]))
    policy = uniform_policy("middle", middle, table.exits, table.confidence_scale)
    expected = replay(table, policy)
    differ = 0
    with torch.no_grad():
        for n, image in enumerate(images):
            features = image
            for k, (stage, head) in enumerate(network.pairs()):
                features = stage(features)
                decision = policy.decide(k, head(features).numpy())
                if decision.leaves_N[0] or k == network.exits - 1:
                    break
            near = abs(float(decision.confidence_N[0]) - middle) < 1e-4
            same = k == expected.exit_N[n] and decision.prediction_N[0] == expected.prediction_N[n]
            differ += not same and not near
    assert differ == 0
    assert 0 < (expected.exit_N < network.exits - 1).sum() < len(expected.exit_N)


def test_table_is_reused_only_for_its_checkpoint(
    trained: RunDirectory, copy_of: Callable[[RunDirectory], RunDirectory]
) -> None:
    run = copy_of(trained)
    first = evaluate_run(run, "test")
    written = run.table("test").stat().st_mtime_ns
    assert evaluate_run(run, "test").checkpoint_sha256 == first.checkpoint_sha256
    assert run.table("test").stat().st_mtime_ns == written
    best, last = run.checkpoint("best"), run.checkpoint("last")
    last.write_bytes(best.read_bytes())
    if load_checkpoint(best).sha256 != first.checkpoint_sha256:
        assert evaluate_run(run, "test").checkpoint_sha256 == load_checkpoint(best).sha256


def test_altered_data_is_refused(trained: RunDirectory, copy_of: Callable[[RunDirectory], RunDirectory]) -> None:
    run = copy_of(trained)
    change_json(run.info_file, lambda content: content["data"].update(fingerprint="0" * 64))
    with pytest.raises(Exception, match=r"the data is not what the run in .* was trained on"):
        evaluate_run(run, "test", again=True)


def test_tensorboard_logger(tiny: Callable[..., Recipe], tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    run = train_recipe(tiny(track__tensorboard=True), tmp_path / "run", stop_after=lambda done: done == 1)
    assert list((run.root / "tensorboard").glob("events.out.tfevents.*"))
