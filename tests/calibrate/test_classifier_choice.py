"""Which classifiers a run with a second stage uses: the better ones win, noise changes nothing, promises stay valid."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from elfnet.calibrate.calibration_table import stratified_part
from elfnet.calibrate.classifier_choice import ClassifierChoice, choose_classifiers
from elfnet.calibrate.family_request import Adjust, FamilyRequest, RiskPoints
from elfnet.errors import RequestError
from elfnet.evaluate.exit_table import ExitTable
from elfnet.recipe.load import load_recipe
from elfnet.recipe.schema import Recipe
from elfnet.run.directory import RunDirectory

TableFactory = Callable[..., ExitTable]
TAUS = tuple(tau / 10 for tau in range(21))
REQUEST = FamilyRequest(search=[0.9], adjust=Adjust(adjust="auto", taus=TAUS))


@pytest.fixture
def recipe() -> Recipe:
    return load_recipe("digits/elf-ce-drw", {"refit.method": "balanced", "refit.epochs": 2})


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """A directory in which the checkpoint of the first stage is there; its tables are given by hand."""
    run = RunDirectory(tmp_path / "run")
    run.checkpoint("first-stage").parent.mkdir(parents=True)
    run.checkpoint("first-stage").touch()
    return run


def made(make_table: TableFactory, *, worse: float, leaning: float, examples: int = 2400) -> ExitTable:
    """A table whose logits are noisier by `worse` and lean to frequent classes by `leaning` times the log prior."""
    table = make_table(examples=examples)
    noise = np.random.default_rng(1).normal(size=table.logits_NEC.shape).astype(np.float32)
    log_prior_C = np.log(table.class_counts_C / table.class_counts_C.sum()).astype(np.float32)
    return replace(table, logits_NEC=table.logits_NEC + worse * noise + leaning * log_prior_C)


def chosen(
    run: RunDirectory,
    recipe: Recipe,
    last: ExitTable,
    first_stage: ExitTable,
    request: FamilyRequest = REQUEST,
) -> ClassifierChoice:
    return choose_classifiers(run, recipe, request, {"last": last, "first-stage": first_stage}.__getitem__)


def test_the_better_classifiers_win(run: RunDirectory, recipe: Recipe, make_table: TableFactory) -> None:
    """The old classifiers lean to frequent classes, which the adjustment corrects, so only their noise counts."""
    good, bad = made(make_table, worse=0, leaning=1), made(make_table, worse=1.5, leaning=1)
    balanced_good, balanced_bad = made(make_table, worse=0, leaning=0), made(make_table, worse=1.5, leaning=0)

    choice = chosen(run, recipe, balanced_bad, good)
    assert choice.checkpoint == "first-stage"
    assert choice.request == replace(REQUEST, adjust=Adjust(adjust="on", taus=TAUS))
    assert choice.why.startswith("of the first stage with adjusted logits (cross-validated balanced accuracy")

    choice = chosen(run, recipe, balanced_good, bad)
    assert (choice.checkpoint, choice.request) == ("last", REQUEST)
    assert choice.why.startswith("of the second stage (cross-validated balanced accuracy")


def test_a_second_stage_that_still_leans_is_compared_as_it_is_used(
    run: RunDirectory, recipe: Recipe, make_table: TableFactory
) -> None:
    """Its logits are adjusted, too, where that is better."""
    leaning, old = made(make_table, worse=0, leaning=1), made(make_table, worse=0.3, leaning=1)
    assert chosen(run, recipe, leaning, old).checkpoint == "last"


def test_equal_classifiers_leave_the_second_stage(run: RunDirectory, recipe: Recipe, make_table: TableFactory) -> None:
    """A difference that may be chance does not undo the second stage."""
    for seed in range(8):
        choice = chosen(run, recipe, make_table(examples=600, seed=seed), make_table(examples=600, seed=seed + 50))
        found = re.search(r"difference ([+-][\d.]+) with a standard error of ([\d.]+)", choice.why)
        assert found is not None
        assert (choice.checkpoint == "first-stage") is (float(found[1]) > 2 * float(found[2]))


def test_examples_that_certify_promises_choose_nothing(
    run: RunDirectory, recipe: Recipe, make_table: TableFactory
) -> None:
    """Whatever their logits are: the choice and its figures are those of the other part."""
    last, old = made(make_table, worse=0.4, leaning=0), made(make_table, worse=0, leaning=1)
    fitting_N = stratified_part(last.labels_N, 0.5, 0)
    logits_NEC = np.array(old.logits_NEC)
    logits_NEC[~fitting_N] = 0.0
    spoiled = replace(old, logits_NEC=logits_NEC)
    assert chosen(run, recipe, last, spoiled).why == chosen(run, recipe, last, old).why
    without = replace(REQUEST, risk=RiskPoints(epsilons=()))
    assert chosen(run, recipe, last, spoiled, without).why != chosen(run, recipe, last, old, without).why


def test_what_decides_without_a_comparison(run: RunDirectory, recipe: Recipe, make_table: TableFactory) -> None:
    def asked(**fields: object) -> ClassifierChoice:
        def unread(checkpoint: str) -> ExitTable:
            raise AssertionError(f"the table of {checkpoint} is not needed")

        return choose_classifiers(run, recipe, replace(REQUEST, **fields), unread)  # type: ignore[arg-type]

    assert asked(classifiers="second-stage").checkpoint == "last"
    forced = asked(classifiers="first-stage")
    assert (forced.checkpoint, forced.request.adjust.adjust) == ("first-stage", "on")
    assert asked(adjust=Adjust()) == ClassifierChoice("last", replace(REQUEST, adjust=Adjust()))
    assert "use no labels" in asked(risk=RiskPoints(loss="agreement")).why
    with pytest.raises(RequestError, match=r"logit adjustment is off; set it to auto"):
        asked(classifiers="first-stage", adjust=Adjust())
    with pytest.raises(RequestError, match="classifiers 'both'"):
        asked(classifiers="both")

    few = make_table(examples=18)
    assert "too few to compare" in chosen(run, recipe, few, few).why
    run.checkpoint("first-stage").unlink()
    assert "are not kept in runs of earlier versions" in asked().why
    with pytest.raises(RequestError, match=r"kept no classifiers of the first stage"):
        asked(classifiers="first-stage")


def test_taus_of_cosine_classifiers_are_of_scaled_logits(run: RunDirectory, make_table: TableFactory) -> None:
    """As in training, where the loss multiplies cosines by a scale, whatever heads the second stage has."""
    settings = {"refit.method": "balanced", "refit.epochs": 2, "refit.head": "linear", "model.head": "cosine"}
    recipe = load_recipe("digits/elf-ce-drw", settings)
    choice = chosen(run, recipe, make_table(), make_table(), replace(REQUEST, classifiers="first-stage"))
    assert choice.request.adjust.loss_scale == recipe.criterion.cosine_scale == 30


def test_a_run_of_one_stage_has_no_choice(run: RunDirectory, make_table: TableFactory) -> None:
    recipe = load_recipe("digits/elf-ce-drw", {})
    assert chosen(run, recipe, make_table(), make_table()) == ClassifierChoice("last", REQUEST)
    with pytest.raises(RequestError, match=r"has no second stage \(refit\.method=balanced\)"):
        chosen(run, recipe, make_table(), make_table(), replace(REQUEST, classifiers="first-stage"))
