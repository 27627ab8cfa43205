"""A run with experts goes through everything: table, operating points, refits, report, bundle and every backend."""

# Shapes: N examples, E exits

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import elfnet
from elfnet.calibrate.family_request import FamilyRequest
from elfnet.calibrate.fit_points import fit_family
from elfnet.calibrate.point_family import Family
from elfnet.calibrate.run import calibrate_run, measure_run
from elfnet.errors import RequestError, WorkError
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.policy_replay import replay
from elfnet.evaluate.run import evaluate_run
from elfnet.export.read_run import model_of_run, split_images
from elfnet.export.run import export_run
from elfnet.inference.bundle.one_file import open_one_file
from elfnet.inference.engine import Answers
from elfnet.inference.timing import measure_stages
from elfnet.models.build import build_network, network_signature
from elfnet.recipe.load import load_recipe
from elfnet.recipe.schema import Recipe
from elfnet.report import read_run, write_report
from elfnet.report.figures.architecture import architecture
from elfnet.report.figures.base import RunFigure
from elfnet.run.checkpoint import load_checkpoint
from elfnet.run.directory import RunDirectory
from elfnet.train.run import train_recipe

# tests/models/test_experts.py and the method elf-strong-experts cover experts in the fast tests.
pytestmark = pytest.mark.slow

EXPERTS = 3
EXITS = 3 + EXPERTS
TOO_NEAR = 1e-4


@pytest.fixture(scope="module")
def run(tiny: Callable[..., Recipe], tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """Trained with `drop` and gradient equilibrium, calibrated and measured; do not write into it."""
    recipe = tiny(
        model__experts=EXPERTS, exits__after_exit="drop", exits__train_threshold="0.3", criterion__equilibrium=True
    )
    trained = train_recipe(recipe, tmp_path_factory.mktemp("runs") / "experts")
    measure_run(trained, calibrate_run(trained))
    return trained


def test_log_and_table_have_an_exit_for_every_expert(run: RunDirectory) -> None:
    record = run.log()[-1]
    assert len(record.exit_share) == EXITS
    assert np.isfinite(record.loss)
    table = evaluate_run(run, "calibration")
    assert table.exits == EXITS
    assert table.experts == EXPERTS
    assert ExitTable.open(run.table("calibration", "last")).experts == EXPERTS
    # The score in the log is of the mean of all experts.
    prediction_N = table.logits_NEC[:, -1].argmax(axis=1)
    recalls = [(prediction_N[table.labels_N == c] == c).mean() for c in range(10)]
    assert record.calibration_balanced_accuracy == pytest.approx(np.mean(recalls), abs=1e-9)


def test_cost_is_relative_to_one_expert(run: RunDirectory) -> None:
    table, adds = evaluate_run(run, "calibration"), run.info().multiply_adds
    assert table.head_cost_E is not None
    assert adds.plain == table.plain_multiply_adds == sum(adds.stages[:4])
    first_expert = table.cost_E[3] - table.head_cost_E[:3].sum()
    assert first_expert == pytest.approx(1.0, abs=1e-12)
    assert table.head_cost_E[3:].tolist() == [0.0] * EXPERTS
    family = Family.open(run.policy_file)
    assert family.plain_exit == 3
    assert family.point("full").expected.mean_cost == pytest.approx(sum(adds.stages) / adds.plain)
    # Budgets reach beyond the plain backbone, to all experts.
    assert "budget=1" in family.names()
    assert max(float(name.removeprefix("budget=")) for name in family.names() if name.startswith("budget=")) > 1.3


@pytest.mark.parametrize("combine", ["auto", "off"])
def test_exits_are_never_combined(run: RunDirectory, combine: str) -> None:
    family = fit_family(evaluate_run(run, "calibration"), FamilyRequest(search=["0.5"], combine=combine))
    assert not any(point.policy.combine for point in family.points)


def test_combining_is_refused(run: RunDirectory) -> None:
    with pytest.raises(RequestError, match=r"combine=on .* model\.experts=3 .*; use combine=off or auto") as caught:
        fit_family(evaluate_run(run, "calibration"), FamilyRequest(search=["0.5"], combine="on"))
    assert "\n" not in str(caught.value)


def _require_replayed(answers: Answers, table: ExitTable, run: RunDirectory, point: str) -> None:
    policy = Family.open(run.policy_file).point(point).policy
    expected = replay(table, policy)
    clear_N = np.abs(answers.confidence_N - expected.confidence_N) <= TOO_NEAR
    assert clear_N.mean() > 0.99
    assert answers.exit_N[clear_N].tolist() == expected.exit_N[clear_N].tolist()
    assert answers.prediction_N[clear_N].tolist() == expected.prediction_N[clear_N].tolist()
    assert answers.cost_N[clear_N] == pytest.approx(expected.cost_N[clear_N])


@pytest.fixture(scope="module")
def bundle(run: RunDirectory, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundles") / "experts.onnx"
    exported = export_run(run, path)
    # The engine on the graphs gave the answers that torch gave, for all images of the calibration split.
    measured = exported.manifest.variants["float32"].measured
    assert measured is not None
    parity = measured.parity
    assert parity is not None
    assert parity.images == len(evaluate_run(run, "calibration").labels_N)
    assert all(point.differ == point.on_the_edge for point in parity.points.values())
    return path


@pytest.fixture(scope="module")
def _openvino_is_imported() -> None:
    """It starts a thread when it is first imported, which no test may leave behind."""
    import_module("elfnet.inference.backends.openvino")


@pytest.mark.usefixtures("_openvino_is_imported")
@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
def test_a_bundle_answers_as_the_table_says(run: RunDirectory, bundle: Path, backend: str) -> None:
    table, images = evaluate_run(run, "test"), split_images(run, "test")
    model = elfnet.load(bundle, backend=backend)
    for point in ("full", "economic", "budget=1", "budget=0.7"):
        _require_replayed(model.engine(images, operating_point=point), table, run, point)


def test_a_run_answers_as_the_table_says(run: RunDirectory) -> None:
    table, images = evaluate_run(run, "test"), split_images(run, "test")
    answers = model_of_run(run).engine(images, operating_point="budget=0.7")
    _require_replayed(answers, table, run, "budget=0.7")


def test_a_bundle_tells_costs_and_recipe(bundle: Path) -> None:
    manifest = open_one_file(bundle).manifest
    assert len(manifest.multiply_adds.stages) == EXITS
    assert manifest.multiply_adds.relative[-1] > 1.5
    assert manifest.provenance.recipe["model"]["experts"] == EXPERTS
    assert f"{EXPERTS} experts" in manifest.provenance.network


def test_measured_time_is_relative_to_one_expert(run: RunDirectory) -> None:
    model, images = model_of_run(run), split_images(run, "test")[:4]
    cost = measure_stages(
        model.engine.backend, images, name="torch", threads=1, rounds=1, plain_exit=model.engine.family.plain_exit
    )
    assert cost.plain == pytest.approx(sum(cost.stages[:4]) + cost.heads[3])
    family = fit_family(cost.applied_to(evaluate_run(run, "calibration")), FamilyRequest(search=["0.5"]))
    assert family.plain_exit == 3


def test_report(run: RunDirectory) -> None:
    text = write_report([run]).read_text()
    assert "resnet8 with 3 experts" in text
    figure = architecture(read_run(run))
    assert isinstance(figure, RunFigure)
    words = " ".join(text.get_text() for text in figure.draw().axes[0].texts)
    for name in ("stage 3:", "expert 1:", "expert 2:", "expert 3:"):
        assert name in words
    assert "stage 4" not in words


def test_statistics_anew(run: RunDirectory) -> None:
    table = evaluate_run(run, "calibration", fresh_statistics=True)
    assert table.exits == EXITS
    assert not np.allclose(table.logits_NEC, evaluate_run(run, "calibration").logits_NEC)


@pytest.mark.parametrize("method", ["balanced", "crt", "lws", "tau-norm", "logit-adjustment", "over-sampling"])
def test_refits_change_the_classifiers_of_all_exits_and_nothing_else(
    run: RunDirectory, tiny: Callable[..., Recipe], tmp_path: Path, method: str
) -> None:
    settings = {"model__exits": True, "model__experts": EXPERTS, "refit__run": str(run.root), "train__epochs": 1}
    if method == "balanced":
        settings["refit__epochs"] = 1
    refitted = train_recipe(tiny(method, **settings), tmp_path / method)
    before, after = (load_checkpoint(one.checkpoint("last")).weights for one in (run, refitted))
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    if method in ("crt", "lws"):
        # As published, batch norm follows the batches of the refit.
        changed = {
            name for name in changed if not name.endswith(("running_mean", "running_var", "num_batches_tracked"))
        }
    if method == "lws":
        assert not changed
        changed = {name for name, scale in after.items() if name.endswith(".scale") and bool((scale != 1).any())}
    found, exits = {name.split(".classifier.")[0] for name in changed}, {f"heads.{k}" for k in range(EXITS)}
    # A tau of 0, chosen for an exit, leaves its biases as they are.
    assert found == exits if method != "logit-adjustment" else found <= exits
    if method != "over-sampling":
        table = evaluate_run(refitted, "calibration")
        assert table.experts == EXPERTS


def test_a_refit_needs_the_same_number_of_experts(
    run: RunDirectory, tiny: Callable[..., Recipe], tmp_path: Path
) -> None:
    recipe = tiny("crt", model__exits=True, model__experts=2, refit__run=str(run.root))
    with pytest.raises(RequestError, match=r"has model\.experts=3, and this recipe model\.experts=2"):
        train_recipe(recipe, tmp_path / "other")


def test_checkpoints_of_other_numbers_of_experts_are_told_apart(run: RunDirectory) -> None:
    model = load_recipe("digits/elf-ce").model
    signatures = [
        network_signature(model.model_copy(update={"experts": experts}), classes=10, image_channels=1)
        for experts in (1, 2, 3)
    ]
    assert signatures[0] == "resnet8 with exits, linear heads of 16 filters at stride 2, 10 classes, 1 channels"
    assert len(set(signatures)) == 3
    with pytest.raises(WorkError, match="is for another network"):
        load_checkpoint(run.checkpoint("last"), network=signatures[1])


def test_experts_are_of_the_recipes_own_network(tiny: Callable[..., Recipe], tmp_path: Path) -> None:
    given = build_network("resnet8", classes=10, image_channels=1, head_filters=8)
    with pytest.raises(RequestError, match=r"model\.experts=2 .* for a network given set model\.experts=1"):
        train_recipe(tiny(model__experts=2), tmp_path / "given", network=given)


@pytest.mark.parametrize("backbone", ["msdnet", "mlp"])
def test_backbones_without_a_last_group(tiny: Callable[..., Recipe], tmp_path: Path, backbone: str) -> None:
    settings: dict[str, Any] = {"model__backbone": backbone, "model__experts": 2}
    with pytest.raises(RequestError, match=rf"model\.experts=2 .* model\.backbone={backbone} .*; set model\.experts=1"):
        train_recipe(tiny(**settings), tmp_path / backbone)
    assert not (tmp_path / backbone).exists()
