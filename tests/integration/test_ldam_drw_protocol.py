"""A run under data.protocol=ldam-drw: no calibration split, fixed thresholds, test scored for the log only."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elfnet.calibrate.family_request import FamilyRequest
from elfnet.calibrate.run import calibrate_run, measure_run
from elfnet.data import build
from elfnet.data.build import fewer_than_requested, load_source
from elfnet.data.types import LabelledImages, Source
from elfnet.errors import RequestError
from elfnet.evaluate.run import evaluate_run
from elfnet.recipe.load import load_recipe
from elfnet.recipe.schema import DataRecipe
from elfnet.report import write_report
from elfnet.reproduce.untuned import untuned_point
from elfnet.run.directory import RunDirectory
from elfnet.train.epoch_statistics import best_test_epoch
from elfnet.train.run import train_recipe

SETTINGS = {
    "data.protocol": "ldam-drw",
    "data.ratio": 10,
    "model.backbone": "resnet8",
    "train.epochs": 5,
    "train.compile": "off",
    "train.threads": 1,
}


@pytest.fixture(scope="module", autouse=True)
def _small_data() -> Iterator[None]:
    """Digits with three channels in place of CIFAR-10."""
    digits = load_source("digits").train
    assert isinstance(digits, LabelledImages)
    images, labels_N = np.repeat(digits.images_NHWC[:, ::2, ::2], 3, axis=3), digits.labels_N
    places_C = [np.flatnonzero(labels_N == label) for label in range(10)]
    train, test = (np.concatenate([places[part] for places in places_C]) for part in (slice(40), slice(40, 50)))
    source = Source(
        name="cifar10",
        class_names=tuple("0123456789"),
        train=LabelledImages(images[train], labels_N[train]),
        test=LabelledImages(images[test], labels_N[test]),
        horizontal_flip=False,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "read_source", lambda _: source)
        yield


@pytest.fixture(scope="module")
def run(_small_data: None, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A finished run; what is written into it disturbs no other test."""
    return train_recipe(load_recipe("cifar10-lt/elf-ldam-drw", SETTINGS), tmp_path_factory.mktemp("runs") / "run")


def test_thresholds_by_cross_fitting(tmp_path: Path) -> None:
    """An option: thresholds are chosen on training images that their network did not see; test is still scored."""
    recipe = load_recipe("cifar10-lt/elf-ldam-drw", {**SETTINGS, "train.epochs": 2, "data.cross_fitting": 2})
    run = train_recipe(recipe, tmp_path / "run")
    assert max(run.info().data.class_counts) == 40, "nothing is held out from the final network"
    assert [record.test_accuracy is not None for record in run.log()] == [True, True]
    assert [record.test_accuracy for record in run.fold(1).log()] == [None, None], "a fold scores what it holds out"
    family = calibrate_run(run)
    assert family.split == "cross-fitting"
    assert "budget=0.5" in family.names()
    assert family.notes[0].startswith("estimated by cross-fitting, no promise")


def test_a_run(run: RunDirectory) -> None:
    info, log = run.info(), run.log()
    assert (info.data.calibration, info.data.test) == (0, 100)
    assert max(info.data.class_counts) == 40, "nothing is held out"
    assert info.data.mean == (0.4914, 0.4822, 0.4465)
    assert all(record.calibration_balanced_accuracy is None for record in log)
    assert not run.checkpoint("best").exists(), "nothing may be selected on test"
    last = evaluate_run(run, "test")
    accuracy = float((last.logits_NEC[:, -1].argmax(axis=1) == last.labels_N).mean())
    assert log[-1].test_accuracy == pytest.approx(accuracy)
    best = best_test_epoch(log)
    assert best is not None
    assert best["accuracy"] == max(record.test_accuracy or 0 for record in log)
    assert best["selected_on"] == "test"


def test_thresholds_are_fixed_in_advance(run: RunDirectory) -> None:
    family = calibrate_run(run)
    assert [point.rule for point in family.points] == ["full depth", *["fixed"] * 8]
    assert family.point("accurate").same_as == "s=1.75/C"
    assert family.point("accurate").policy.thresholds == (0.175,) * 3
    assert "fixed in advance (s=1.75/C)" in family.notes[0]
    assert {"full", "accurate", "economic", "s=1.5/C"} <= set(measure_run(run, family).points)
    assert write_report([run]).is_file()
    untuned = untuned_point(run)
    assert untuned is not None
    assert untuned["setting"] == "s = 1.75/C"
    with pytest.raises(RequestError, match="no calibration split to fit operating points on"):
        calibrate_run(run, FamilyRequest(search=("0.9",), budgets=(0.5,)))
    with pytest.raises(RequestError, match=r"data\.protocol=ldam-drw has no calibration split"):
        evaluate_run(run, "calibration")


def test_tau_is_given(tmp_path: Path) -> None:
    ce = train_recipe(load_recipe("cifar10-lt/ce", SETTINGS), tmp_path / "ce")
    settings: dict[str, Any] = {**SETTINGS, "refit.run": str(ce.root), "refit.taus": (1.0,)}
    adjusted = train_recipe(load_recipe("cifar10-lt/logit-adjustment", settings), tmp_path / "adjusted")
    refit = adjusted.info().refit
    assert refit is not None
    assert (refit.tau, refit.scores, refit.score_before) == (1.0, (), None)
    with pytest.raises(RequestError, match=r"data\.protocol=ldam-drw has none; give one tau, such as --refit\.taus 1"):
        load_recipe("cifar10-lt/tau-norm", {**SETTINGS, "refit.run": "ce"})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"data.largest": 100}, "data.largest=100 changes it; leave it out"),
        ({"data.profile": "pareto"}, "data.profile=pareto changes it; use exponential or step"),
        ({"data.source": "digits"}, "data.source=digits changes it; use cifar10-lt or cifar100-lt"),
        ({"exits.logit_adjustment": "auto"}, "exits.logit_adjustment=auto chooses tau on calibration images"),
    ],
)
def test_what_changes_the_protocol_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        load_recipe("cifar10-lt/ce", {**SETTINGS, **settings})


def test_counts_that_are_not_reached_are_said() -> None:
    counts = (5000, 2997, 50)
    data = DataRecipe(profile="counts", counts=counts)
    assert "4,800 training images instead of 5,000" in fewer_than_requested(data, [4800, 2997, 50])
    assert fewer_than_requested(data, counts) == ""
    assert fewer_than_requested(DataRecipe(largest=98), [98, 6]) == ""
