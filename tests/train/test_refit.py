"""Runs that start from a finished one: what changes, what stays, what is refused."""

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from run_files import change_json

from elfnet.calibrate.run import calibrate_run, measure_run
from elfnet.data.build import load_splits
from elfnet.data.splits import Splits
from elfnet.errors import ElfnetError, RequestError
from elfnet.evaluate.run import evaluate_run
from elfnet.methods.refit.build import FITTED
from elfnet.models.build import build_network
from elfnet.recipe.load import load_recipe, save_recipe
from elfnet.recipe.schema import DataRecipe, Recipe
from elfnet.report import method_name, write_report
from elfnet.run.checkpoint import Checkpoint, load_checkpoint, tensors_sha256
from elfnet.run.directory import RunDirectory
from elfnet.run.info import RunInfo
from elfnet.train import refit as refit_run
from elfnet.train.launch import Launch
from elfnet.train.logging import Silent
from elfnet.train.run import train_recipe

Build = Callable[..., Recipe]


@pytest.fixture(scope="module")
def tiny(tiny_settings: dict[str, Any]) -> Build:
    """A recipe of a method, with overrides (dots written as double underscores)."""

    def build(method: str, **overrides: Any) -> Recipe:
        dotted = {name.replace("__", "."): value for name, value in overrides.items()}
        return load_recipe(f"digits/{method}", {**tiny_settings, "train.epochs": 2, **dotted})

    return build


@pytest.fixture(scope="module")
def plain(tiny: Build, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A finished run of a plain network; do not write into it."""
    return train_recipe(tiny("ce-drw"), tmp_path_factory.mktemp("runs") / "plain")


@pytest.fixture(scope="module")
def with_exits(tiny: Build, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """The same with exits."""
    return train_recipe(tiny("elf-ce"), tmp_path_factory.mktemp("runs") / "exits")


def last(run: RunDirectory) -> Checkpoint:
    return load_checkpoint(run.checkpoint("last"))


def changed(run: RunDirectory, source: RunDirectory) -> set[str]:
    """Tensors of a run that are not the source's, bit for bit."""
    before = last(source).weights
    return {
        name
        for name, tensor in last(run).weights.items()
        if name not in before or not torch.equal(tensor, before[name])
    }


def classifier_names(run: RunDirectory, *parts: str) -> set[str]:
    exits = len(run.info().multiply_adds.heads)
    return {f"heads.{k}.classifier.{part}" for k in range(exits) for part in parts}


def outcome(run: RunDirectory) -> tuple[str, str, list[dict[str, Any]]]:
    log = [{name: value for name, value in record.to_json().items() if name != "seconds"} for record in run.log()]
    return last(run).sha256, tensors_sha256(last(run).optimiser), log


def test_crt_changes_classifiers_only_and_resumes_without_the_run_it_started_from(
    tiny: Build, with_exits: RunDirectory, tmp_path: Path
) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(with_exits.root, moved)
    recipe = tiny("crt", model__exits=True, train__epochs=3, refit__run=str(moved))
    whole = train_recipe(recipe, tmp_path / "whole")
    # Weights and biases of stages and trunks are the run's, bit for bit; batch norm follows the batches, as published.
    moved_tensors = changed(whole, with_exits)
    statistics = {name for name in moved_tensors if name.endswith(("running_mean", "running_var", "batches_tracked"))}
    assert moved_tensors - statistics == classifier_names(whole, "weight", "bias")
    assert any(name.startswith("stages.") for name in statistics)
    source = whole.info().refit
    assert source is not None
    assert source.checkpoint_sha256 == last(with_exits).sha256
    assert whole.recipe().data.sampler == "class-balanced"

    class Interrupted(Silent):
        def started(self, recipe: Recipe, info: RunInfo, epochs_done: int) -> None:  # noqa: ARG002
            raise KeyboardInterrupt

    parts = tmp_path / "parts"
    with pytest.raises(KeyboardInterrupt):
        train_recipe(recipe, parts, observer=Interrupted())
    shutil.rmtree(moved)
    begun = RunDirectory(parts)
    assert last(begun).epochs_done == 0
    # The classifiers are new, not the run's.
    assert classifier_names(whole, "weight") <= changed(begun, with_exits)
    train_recipe(recipe, parts, resume=True, stop_after=lambda done: done == 2)
    assert outcome(train_recipe(recipe, parts, resume=True)) == outcome(whole)


def test_lws_changes_scales_only_and_starts_where_the_run_ended(
    tiny: Build, plain: RunDirectory, tmp_path: Path
) -> None:
    recipe = tiny("lws-fast", refit__run=str(plain.root))
    run = train_recipe(recipe, tmp_path / "lws", stop_after=lambda done: done == 1)
    assert changed(run, plain) == classifier_names(run, "scale")
    scale = last(run).weights["heads.0.classifier.scale"]
    assert not torch.allclose(scale, torch.ones_like(scale), atol=1e-4)
    train_recipe(recipe, run.root, resume=True)
    assert changed(run, plain) == classifier_names(run, "scale")
    # With scales of 1 the logits are those of the run.
    weights = {**last(run).weights, "heads.0.classifier.scale": torch.ones_like(scale)}
    scaled, linear = (
        build_network("resnet8", classes=10, image_channels=1, exits=False, head=head) for head in ("scaled", "linear")
    )
    scaled.load_state_dict(weights)
    linear.load_state_dict(dict(last(plain).weights))
    images = torch.randn(4, 1, 8, 8)
    assert torch.equal(scaled.eval().logits(images), linear.eval().logits(images))


@pytest.mark.parametrize("how", FITTED)
def test_a_fitted_run_differs_in_classifiers_only(
    how: str, tiny: Build, with_exits: RunDirectory, tmp_path: Path
) -> None:
    # A large decay, with which regressions are done after few steps.
    settings = {"model__exits": True, "refit__run": str(with_exits.root), "train__weight_decay": 0.1}
    run = train_recipe(tiny(how, refit__taus=(0.7,), train__epochs=9, **settings), tmp_path / "run")
    parts = ("bias",) if how == "logit-adjustment" else ("weight", "bias")
    assert changed(run, with_exits) == classifier_names(run, *parts)
    record = run.info().refit
    assert record is not None
    assert (record.method, record.run) == (how, str(with_exits.root))
    assert record.checkpoint_sha256 == last(with_exits).sha256
    assert "\n" not in record.summary
    assert len(record.exits) == 4
    assert 0 < (record.calibration_balanced_accuracy or 0) <= 1
    # Its network was trained as the run's, whatever else the recipe says.
    assert run.recipe().train.epochs == last(run).epochs_done == 2
    assert run.recipe().exits.rule == "elf"
    assert last(run).sha256 == load_checkpoint(run.checkpoint("best")).sha256


def test_going_on_with_a_fitted_run_leaves_it_as_it_is_and_needs_the_other_no_more(
    tiny: Build, plain: RunDirectory, tmp_path: Path
) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(plain.root, moved)
    recipe = tiny("logit-adjustment", refit__run=str(moved))
    run = train_recipe(recipe, tmp_path / "run")
    before = run.checkpoint("last").read_bytes()
    shutil.rmtree(moved)
    train_recipe(recipe, run.root, resume=True)
    assert run.checkpoint("last").read_bytes() == before
    assert "no run directory" in refusal(recipe, run.root, overwrite=True)
    assert run.checkpoint("last").read_bytes() == before
    # Killed before its checkpoint was written, it has to begin again.
    run.checkpoint("last").unlink()
    assert "no run directory" in refusal(recipe, run.root, resume=True)


def test_a_fitted_run_is_opened_by_everything_else(tiny: Build, plain: RunDirectory, tmp_path: Path) -> None:
    run = train_recipe(tiny("tau-norm", refit__run=str(plain.root)), tmp_path / "run")
    table = evaluate_run(run, "calibration")
    assert table.checkpoint_sha256 == last(run).sha256
    results = measure_run(run, calibrate_run(run))
    assert results.points["full"].n == 60
    assert write_report([run]).is_file()
    assert method_name(run.recipe()) == "tau-norm on CE+DRW"
    # It is a finished run itself, which another can start from.
    again = train_recipe(tiny("logit-adjustment", refit__run=str(run.root)), tmp_path / "again")
    assert changed(again, run) <= classifier_names(run, "bias")


def test_the_choice_of_tau_does_not_look_at_the_test_split(
    tiny: Build, plain: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Sealed:
        def __len__(self) -> int:
            return 60

        def __getattr__(self, name: str) -> object:
            raise AssertionError(f"{name} of the test split was read")

    def sealed(data: DataRecipe) -> Splits:
        return dataclasses.replace(load_splits(data), test=Sealed())

    whole = train_recipe(tiny("tau-norm", refit__run=str(plain.root)), tmp_path / "whole")
    monkeypatch.setattr(refit_run, "load_splits", sealed)
    for how in ("tau-norm", "logit-adjustment", "smote"):
        run = train_recipe(tiny(how, refit__run=str(plain.root), train__weight_decay=0.1), tmp_path / how)
        assert run.info().data.test == 60
    assert outcome(RunDirectory(tmp_path / "tau-norm")) == outcome(whole)


def refusal(recipe: Recipe, out: Path, **how: Any) -> str:
    with pytest.raises(ElfnetError) as caught:
        train_recipe(recipe, out, **how)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("method", ["crt", "tau-norm"])
def test_runs_that_do_not_fit(method: str, tiny: Build, plain: RunDirectory, tmp_path: Path) -> None:
    source, out = str(plain.root), tmp_path / "out"

    def refused(**overrides: Any) -> str:
        return refusal(tiny(method, **{"refit__run": source, **overrides}), out)

    assert "name it with --from RUN" in refused(refit__run="")
    assert "no run directory" in refused(refit__run=str(tmp_path / "nowhere"))
    assert "is not a run directory" in refused(refit__run=str(tmp_path))
    assert "has data.ratio=4.0, and this recipe data.ratio=5.0" in refused(data__ratio=5)
    assert "has data.subset_seed=0, and this recipe data.subset_seed=1" in refused(data__subset_seed=1)
    assert "has model.backbone=resnet8, and this recipe model.backbone=resnet14" in refused(model__backbone="resnet14")
    assert "has model.exits=false, and this recipe model.exits=true" in refused(model__exits=True)
    assert not out.exists()


def test_a_run_that_is_not_finished(tiny: Build, plain: RunDirectory, tmp_path: Path) -> None:
    copy = RunDirectory(tmp_path / "copy")
    shutil.copytree(plain.root, copy.root)
    save_recipe(tiny("ce-drw", train__epochs=3), copy.recipe_file)
    recipe = tiny("crt", refit__run=str(copy.root))
    assert "has 2 of 3 epochs; finish it" in refusal(recipe, tmp_path / "out")
    copy.checkpoint("last").unlink()
    assert "has 0 of 3 epochs; finish it" in refusal(recipe, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_data_that_was_changed(tiny: Build, plain: RunDirectory, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(plain.root, copy)
    change_json(copy / "run.json", lambda content: content["data"].update(fingerprint="0" * 64))
    for method in ("crt", "logit-adjustment"):
        assert "is not what the run in" in refusal(tiny(method, refit__run=str(copy)), tmp_path / "out")


def test_a_run_is_not_replaced_by_what_starts_from_it(tiny: Build, plain: RunDirectory) -> None:
    before = last(plain).sha256
    for method in ("crt", "tau-norm"):
        recipe = tiny(method, refit__run=str(plain.root))
        assert "would replace the one it starts from" in refusal(recipe, plain.root, overwrite=True)
        assert "holds a run already" in refusal(recipe, plain.root)
    assert last(plain).sha256 == before


def test_what_a_refit_cannot_use(tiny: Build, plain: RunDirectory, tmp_path: Path) -> None:
    recipe = tiny("tau-norm", refit__run=str(plain.root))
    assert "leave network= out" in refusal(recipe, tmp_path / "out", network=build_network("resnet8", classes=10))
    assert "leave --devices out" in refusal(recipe, tmp_path / "out", launch=Launch(devices=2))


@pytest.mark.parametrize(
    ("method", "overrides", "expected"),
    [
        ("ce", {"refit__run": "runs/ce"}, "does not start from a run"),
        ("ce", {"model__head": "scaled"}, "for LWS only"),
        ("lws", {"model__head": "linear"}, "for LWS only"),
        ("crt", {"model__branches": 2}, "model.branches=1"),
        ("crt", {"model__weights": "w.pt"}, "leave model.weights out"),
        ("crt", {"train__backbone_lr_factor": 0.5}, "leave train.backbone_lr_factor out"),
        ("tau-norm", {"model__head": "cosine"}, "normalised already"),
        ("logit-adjustment", {"model__head": "cosine"}, "a cosine classifier has none"),
        ("smote", {"model__head": "cosine"}, "a cosine classifier has neither"),
    ],
)
def test_combinations_without_sense(tiny: Build, method: str, overrides: dict[str, Any], expected: str) -> None:
    with pytest.raises(RequestError, match=expected):
        tiny(method, **overrides)
