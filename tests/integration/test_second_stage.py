"""A balanced second stage: what it changes, what it leaves, and that it stops and goes on as any training does."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from elfnet.calibrate.family_request import adjust_from_recipe, request_from_recipe
from elfnet.calibrate.point_family import Family
from elfnet.calibrate.run import calibrate_run, measure_run
from elfnet.data.build import load_splits
from elfnet.errors import ElfnetError
from elfnet.evaluate.exit_table import CROSS_FITTING, ExitTable
from elfnet.evaluate.run import evaluate_run
from elfnet.export import variants
from elfnet.export.onnx import export_stages
from elfnet.export.read_run import model_of_run, open_parts
from elfnet.export.run import Exported, export_run, make_variants
from elfnet.hub import load_network, save_pretrained
from elfnet.inference.model import load
from elfnet.methods.refit.classifiers import classifier_tensor
from elfnet.models.build import build_network, network_of
from elfnet.recipe.load import save_recipe
from elfnet.recipe.schema import Recipe
from elfnet.recipe.stages import Stage, final_model
from elfnet.report.page import write_report
from elfnet.report.record import method_name
from elfnet.run.checkpoint import Checkpoint, load_checkpoint, tensors_sha256
from elfnet.run.directory import RunDirectory
from elfnet.train import run as session
from elfnet.train.build import Assembled, assemble
from elfnet.train.prepare import Prepared
from elfnet.train.run import train_recipe

Build = Callable[..., Recipe]
FIRST, SECOND = 2, 2
SECOND_STAGE = {"train__epochs": FIRST, "refit__method": "balanced", "refit__epochs": SECOND}
COSINE = {**SECOND_STAGE, "refit__head": "cosine"}


@pytest.fixture(scope="module")
def first_stage(tiny: Build, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """The training alone; do not write into it."""
    return train_recipe(tiny(train__epochs=FIRST), tmp_path_factory.mktemp("runs") / "first")


@pytest.fixture(scope="module")
def both(tiny: Build, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """Linear heads, then cosine ones; do not write into it."""
    return train_recipe(tiny(**COSINE), tmp_path_factory.mktemp("runs") / "both")


@pytest.fixture(scope="module")
def linear(tiny: Build, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """Linear heads in both stages; do not write into it."""
    return train_recipe(tiny(**SECOND_STAGE), tmp_path_factory.mktemp("runs") / "linear")


@pytest.fixture(scope="module")
def exported(both: RunDirectory, tmp_path_factory: pytest.TempPathFactory) -> tuple[RunDirectory, Exported]:
    """The same, calibrated, measured and exported."""
    run = RunDirectory(tmp_path_factory.mktemp("runs") / "exported")
    shutil.copytree(both.root, run.root)
    measure_run(run, calibrate_run(run))
    return run, export_run(run, measure_memory=None)


def last(run: RunDirectory) -> Checkpoint:
    return load_checkpoint(run.checkpoint("last"))


def outcome(run: RunDirectory) -> tuple[str, str, str, list[dict[str, Any]], dict[str, Any]]:
    """Weights, momentum, best weights and log; wall time is the one thing that may differ."""
    final = last(run)
    log = [{k: v for k, v in record.to_json().items() if k != "seconds"} for record in run.log()]
    progress = {name: value for name, value in final.progress.items() if name != "seconds"}
    best = load_checkpoint(run.checkpoint("best")).sha256
    return final.sha256, tensors_sha256(final.optimiser), best, log, progress


def test_the_training_before_it_is_as_without(first_stage: RunDirectory, both: RunDirectory) -> None:
    alone, together = first_stage.log(), both.log()
    assert [record.epoch for record in together] == list(range(FIRST + SECOND))
    assert [record.stage for record in together] == ["training"] * FIRST + ["balanced"] * SECOND
    for one, other in zip(alone, together[:FIRST], strict=True):
        assert other == one.model_copy(update={"seconds": other.seconds, "stage": "training"})


def test_everything_but_the_classifiers_stays(first_stage: RunDirectory, both: RunDirectory) -> None:
    before, after = last(first_stage).weights, last(both).weights
    kept = {name for name in after if not classifier_tensor(name)}
    assert kept == {name for name in before if not classifier_tensor(name)}
    for name in kept:
        assert torch.equal(before[name], after[name]), name
    assert {classifier_tensor(name) for name in after} == {"", "weight"}
    assert sum(bool(classifier_tensor(name)) for name in after) == 4
    assert set(last(both).optimiser) == {name for name in after if classifier_tensor(name)}


def test_it_learns_at_every_exit_and_its_rate_falls(both: RunDirectory) -> None:
    second = both.log()[FIRST:]
    assert second[-1].loss < second[0].loss
    assert all(record.exit_share == (0, 0, 0, 1) for record in second)
    rates = [record.learning_rate for record in second]
    assert rates == sorted(rates, reverse=True)
    assert 0 < rates[-1] < 0.1 * rates[0]


@pytest.mark.parametrize("heads", ["linear", "cosine"])
@pytest.mark.parametrize("stop", range(1, FIRST + SECOND))
def test_stopped_anywhere_it_goes_on_bit_for_bit(
    both: RunDirectory, linear: RunDirectory, tmp_path: Path, stop: int, heads: str
) -> None:
    """In either stage, and exactly between them."""
    whole = both if heads == "cosine" else linear
    recipe = whole.recipe()
    parts = train_recipe(recipe, tmp_path / "parts", stop_after=lambda done: done == stop)
    assert last(parts).epochs_done == stop
    assert ("cosine" in last(parts).network) is (heads == "cosine" and stop > FIRST)
    # What is there can be looked at in between, with the network of its stage.
    assert evaluate_run(parts, "calibration").checkpoint_sha256 == last(parts).sha256
    train_recipe(recipe, parts.root, resume=True)
    assert outcome(parts) == outcome(whole)


@pytest.mark.slow
@pytest.mark.parametrize("epoch", [1, FIRST + 1])
def test_killed_in_either_stage_it_goes_on(tiny: Build, both: RunDirectory, tmp_path: Path, epoch: int) -> None:
    file, out = tmp_path / "tiny.toml", tmp_path / "killed"
    save_recipe(tiny(**COSINE), file)
    command = [sys.executable, "-m", "elfnet", "train", str(file), "--out", str(out), "--no-report"]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    ) as one:
        assert one.stderr is not None
        for line in one.stderr:
            if line.startswith(f"epoch {epoch}/{FIRST + SECOND}"):
                assert ("balanced stage" in line) is (epoch > FIRST)
                one.send_signal(signal.SIGKILL)
                break
    assert 0 < last(RunDirectory(out)).epochs_done < FIRST + SECOND
    resumed = train_recipe(RunDirectory(out).recipe(), out, resume=True)
    assert outcome(resumed) == outcome(both)


@pytest.mark.parametrize("stop", [FIRST, FIRST + 1, None])
def test_the_best_is_of_the_second_stage_once_that_has_begun(
    tiny: Build, tmp_path: Path, stop: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However good the first one was: its network may be another."""
    scores = iter([0.9, 0.8, 0.3, 0.2])
    monkeypatch.setattr(session, "calibration_score", lambda *_: next(scores))
    run = train_recipe(tiny(**COSINE), tmp_path / "run", stop_after=lambda done: done == stop)
    if stop is not None:
        expected = (1, 0.9) if stop == FIRST else (FIRST + 1, 0.3)
        assert (load_checkpoint(run.checkpoint("best")).epochs_done, last(run).progress["best_score"]) == expected
        train_recipe(run.recipe(), run.root, resume=True)
    best = load_checkpoint(run.checkpoint("best"))
    assert (best.epochs_done, last(run).progress["best_score"]) == (FIRST + 1, 0.3)
    assert evaluate_run(run, "calibration", checkpoint="best").checkpoint_sha256 == best.sha256


def test_averaged_weights_are_what_is_frozen(tiny: Build, tmp_path: Path) -> None:
    recipe = tiny(**COSINE, train__ema_decay=0.9)
    whole = train_recipe(recipe, tmp_path / "whole")
    parts = train_recipe(recipe, tmp_path / "parts", stop_after=lambda done: done == FIRST)
    between = last(parts)
    name = next(name for name in between.weights if name.startswith("stages.") and name.endswith("weight"))
    assert not torch.equal(between.weights[name], between.trained_weights[name])
    train_recipe(recipe, parts.root, resume=True)
    assert outcome(parts) == outcome(whole)
    for tensor in (name for name in between.weights if not classifier_tensor(name)):
        assert torch.equal(last(parts).weights[tensor], between.weights[tensor]), tensor
    assert not last(parts).trained_weights


def test_from_a_finished_run(tiny: Build, first_stage: RunDirectory, tmp_path: Path) -> None:
    """A run of its own: its epochs are its own, and it needs the other one no more once it has begun."""
    source = tmp_path / "source"
    shutil.copytree(first_stage.root, source)
    settings = {"refit__run": str(source), "refit__epochs": 2, "refit__head": "cosine", "model__exits": True}
    recipe = tiny("balanced", **settings)
    whole = train_recipe(recipe, tmp_path / "whole")
    parts = train_recipe(recipe, tmp_path / "parts", stop_after=lambda _: True)
    shutil.rmtree(source)
    train_recipe(recipe, parts.root, resume=True)
    assert outcome(parts) == outcome(whole)
    assert [(record.epoch, record.stage) for record in whole.log()] == [(0, "balanced"), (1, "balanced")]
    before, after = last(first_stage).weights, last(whole).weights
    for name in after:
        assert bool(classifier_tensor(name)) is not (name in before and torch.equal(before[name], after[name])), name
    refit = whole.info().refit
    assert refit is not None
    assert refit.method == "balanced"
    assert "only the classifiers learn" in refit.summary
    assert calibrate_run(whole).exits == 4


def test_without_a_length_a_run_of_its_own_has_ten_epochs(
    tiny: Build, first_stage: RunDirectory, tmp_path: Path
) -> None:
    recipe = tiny("balanced", refit__run=str(first_stage.root), model__exits=True)
    run = train_recipe(recipe, tmp_path / "run", stop_after=lambda _: True)
    assert run.log()[0].learning_rate > 0.09
    with pytest.raises(ElfnetError, match=r"has 1 of 10 epochs; .* finish it"):
        calibrate_run(run)


def test_tables_costs_export_and_report_are_of_the_final_network(
    tiny: Build, exported: tuple[RunDirectory, Exported]
) -> None:
    run, bundle = exported
    expected = network_of(final_model(tiny(**COSINE)), classes=10, image_channels=1)
    expected.load_state_dict(dict(last(run).weights))
    assert "cosine heads" in bundle.manifest.provenance.network
    images = torch.randn(4, 1, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        probabilities = expected.eval()(images)[-1].softmax(dim=1).numpy()
    found = load(bundle.path, threads=1).engine(images.numpy(), operating_point="full")
    np.testing.assert_array_equal(found.prediction_N, probabilities.argmax(axis=1))
    assert run.info().multiply_adds.heads == bundle.manifest.multiply_adds.heads
    assert np.abs(evaluate_run(run, "test").logits_NEC).max() <= 1 + 1e-6
    answers = [model.predict(np.zeros((1, 32, 32, 1), np.uint8)) for model in (model_of_run(run), load(bundle.path))]
    assert answers[0][0].label == answers[1][0].label
    assert method_name(run.recipe()) == "balanced classifiers on ELF(CE)+DRW"
    assert "4 of 4" in write_report([run]).read_text()


def test_the_classifiers_of_the_first_stage_are_used_wherever_they_are_chosen(
    tiny: Build, first_stage: RunDirectory, both: RunDirectory, tmp_path: Path
) -> None:
    """Linear heads again, with adjusted logits: in tables, points, export, report, evaluation and the saved network."""
    run = RunDirectory(tmp_path / "run")
    shutil.copytree(both.root, run.root)
    kept = load_checkpoint(run.checkpoint("first-stage"))
    assert kept.sha256 == last(first_stage).sha256
    request = replace(
        request_from_recipe(run.recipe()),
        classifiers="first-stage",
        adjust=adjust_from_recipe(run.recipe(), "auto"),
    )
    family = calibrate_run(run, request)
    assert (family.checkpoint, family.checkpoint_sha256) == ("first-stage", kept.sha256)
    assert family.notes[0] == "classifiers: of the first stage with adjusted logits: as requested"
    assert Family.open(run.policy_file) == family
    results = measure_run(run, family)
    assert results.checkpoint_sha256 == kept.sha256
    expected = network_of(tiny().model, classes=10, image_channels=1)
    expected.load_state_dict(dict(kept.weights))
    bundle = export_run(run, measure_memory=None)
    assert "cosine heads" not in bundle.manifest.provenance.network
    images = torch.randn(4, 1, 32, 32, generator=torch.Generator().manual_seed(0))
    tau = np.zeros(4) if family.adjustment is None else np.array(family.adjustment.taus)
    with torch.no_grad():
        logits_BC = expected.eval()(images)[-1].numpy() - tau[-1] * np.array(family.log_prior or 0)
    found = load(bundle.path, threads=1).engine(images.numpy(), operating_point="full")
    np.testing.assert_array_equal(found.prediction_N, logits_BC.argmax(axis=1))
    assert "first stage with adjusted logits" in write_report([run]).read_text()
    save_pretrained(run.root, tmp_path / "saved")
    network, _ = load_network(tmp_path / "saved")
    assert tensors_sha256(network.state_dict()) == kept.sha256


def test_other_precisions_are_of_the_chosen_classifiers(
    tiny: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compared with float32 of the same classifiers, with points for them; eq. 5 has the scale of their heads."""
    run = train_recipe(tiny(**COSINE, exits__infer_confidence_scale=30.0), tmp_path / "run")
    recipe = run.recipe()
    request = replace(request_from_recipe(recipe), adjust=adjust_from_recipe(recipe, "auto"), classifiers="first-stage")
    family = calibrate_run(run, request)
    scales = [evaluate_run(run, "calibration", checkpoint=which).confidence_scale for which in ("first-stage", "last")]
    assert scales == [1.0, 30.0]
    # The graphs stay those of float32, so that all figures are known.
    monkeypatch.setattr(variants, "quantise_stages", lambda graphs, _: list(graphs))
    monkeypatch.setattr(variants, "time_ratio", lambda *_: 1.0)
    parts = open_parts(run)
    graphs, splits = export_stages(parts.network, (1, 32, 32)), load_splits(recipe.data)
    (made,) = make_variants(run, ["int8"], graphs, splits, parts, None)
    assert (made.family.checkpoint, made.family.checkpoint_sha256) == ("first-stage", family.checkpoint_sha256)
    assert made.family.adjustment == family.adjustment
    assert made.against_float32.accuracy == made.against_float32.accuracy_float32
    measure_run(run, family)
    assert export_run(run, precisions=["int8"], measure_memory=None).int8 is not None


def test_a_run_of_one_stage_has_no_first_one(first_stage: RunDirectory) -> None:
    with pytest.raises(ElfnetError, match=r"has no second stage .* choose from: last, best"):
        evaluate_run(first_stage, checkpoint="first-stage")


def test_a_run_from_another_one_and_its_folds_keep_both(tiny: Build, first_stage: RunDirectory, tmp_path: Path) -> None:
    """The classifiers of the source run can still be chosen, also where cross-fitting chooses the thresholds."""
    recipe = tiny("balanced", refit__run=str(first_stage.root), refit__epochs=1, model__exits=True)
    run = train_recipe(recipe, tmp_path / "balanced")
    kept = load_checkpoint(run.checkpoint("first-stage"))
    assert (kept.sha256, kept.epochs_done) == (last(first_stage).sha256, FIRST)
    table, source = (evaluate_run(run, checkpoint="first-stage"), evaluate_run(first_stage))
    np.testing.assert_array_equal(table.logits_NEC, source.logits_NEC)

    settings = {**SECOND_STAGE, "data__cross_fitting": 2, "data__calibration_per_class": 0}
    fitted = train_recipe(tiny(**settings, exits__logit_adjustment="auto"), tmp_path / "fitted")
    compared = calibrate_run(fitted)
    assert any("first stage with adjusted logits" in note for note in compared.notes)
    request = replace(request_from_recipe(fitted.recipe()), classifiers="first-stage")
    family = calibrate_run(fitted, request)
    assert family.checkpoint_sha256 == load_checkpoint(fitted.checkpoint("first-stage")).sha256
    joined = ExitTable.open(fitted.table(CROSS_FITTING, "first-stage"))
    fold = evaluate_run(fitted.fold(1), "calibration", checkpoint="first-stage")
    np.testing.assert_array_equal(joined.logits_NEC[: fold.examples], fold.logits_NEC)
    measure_run(fitted, family)
    assert "first stage" in write_report([fitted]).read_text()


class Steps:
    """What the trainer of each stage is made of, and whether its parts learn."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[tuple[Recipe, Assembled]] = []

        def remembered(prepared: Prepared, stage: Stage, *arguments: Any) -> Assembled:
            assembled = assemble(prepared, stage, *arguments)
            self.made.append((stage.recipe, assembled))
            return assembled

        monkeypatch.setattr(session, "assemble", remembered)


def test_only_classifiers_have_a_backward_pass(tiny: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which is what makes it cheap: no layer before them keeps anything for a gradient."""
    steps = Steps(monkeypatch)
    train_recipe(tiny(**COSINE, train__mix="mixup"), tmp_path / "run", stop_after=lambda done: done == FIRST + 1)
    (_, training), (recipe, refit) = steps.made
    assert (recipe.train.mix, recipe.exits.rule, recipe.criterion.loss) == ("none", "all", "balanced-softmax")
    first, second = (one.trainer._network for one in (training, refit))
    assert all(parameter.requires_grad for parameter in first.parameters())
    for name, parameter in second.named_parameters():
        assert parameter.requires_grad is bool(classifier_tensor(name)), name
    for module in second.modules():
        if isinstance(module, nn.BatchNorm2d):
            assert not module.training
    features: Any = torch.zeros(2, 1, 32, 32)
    for stage, head in second.pairs():
        features = stage(features)
        assert not features.requires_grad
        assert head(features).requires_grad
    assert refit.trainer._loss.base.scale == 30.0
    assert training.trainer._loss.base.scale == 1.0


def test_what_makes_no_sense_is_refused(tiny: Build, first_stage: RunDirectory, tmp_path: Path) -> None:
    def refused(recipe: Recipe, **how: Any) -> str:
        with pytest.raises(ElfnetError) as caught:
            train_recipe(recipe, tmp_path / "out", **how)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    assert "name it with --from RUN" in refused(tiny("balanced"))
    assert "or set refit.epochs, such as 10, to train both stages in one run" in refused(tiny("balanced"))
    network = build_network("resnet8", classes=10, image_channels=1)
    assert "leave network= out, or set refit.method=none" in refused(tiny(**SECOND_STAGE), network=network)
    other = tiny("balanced", refit__run=str(first_stage.root), model__exits=True, model__head="cosine")
    assert "has model.head=linear, and this recipe model.head=cosine" in refused(other)
    assert not (tmp_path / "out").exists()


def test_a_run_with_a_second_stage_is_a_source_as_it_ended(tiny: Build, both: RunDirectory, tmp_path: Path) -> None:
    crt = {"refit__run": str(both.root), "model__exits": True, "model__head": "cosine", "train__epochs": 1}
    run = train_recipe(tiny("crt", **crt), tmp_path / "crt")
    for name, tensor in last(both).weights.items():
        if name.endswith(("running_mean", "running_var", "num_batches_tracked")):
            continue  # as published, batch norm follows the batches of cRT
        assert bool(classifier_tensor(name)) is not torch.equal(tensor, last(run).weights[name]), name
    with pytest.raises(ElfnetError, match=r"has model\.head=cosine, and this recipe model\.head=linear"):
        train_recipe(tiny("crt", **{**crt, "model__head": "linear"}), tmp_path / "other")
