"""The choice of classifiers in a run with a second stage: the balanced ones, or the first stage's with adjusted logits.

Both stages have the same features. The second stage trains new classifiers on them; logit adjustment corrects the old
ones and costs nothing. Cross-validation on the calibration split compares the two. Ties go to the second stage.
"""

# Shapes: N examples

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from elfnet.calibrate.adjustment_choice import PairedComparison, TauFit
from elfnet.calibrate.calibration_table import require_calibration, split_table
from elfnet.calibrate.confidence import MIN_EXAMPLES
from elfnet.calibrate.family_request import Adjust, FamilyRequest
from elfnet.errors import RequestError
from elfnet.evaluate.exit_table import ExitTable
from elfnet.recipe.schema import Recipe
from elfnet.recipe.stages import loss_scale
from elfnet.registry import unknown_name
from elfnet.run.directory import FIRST_STAGE, RunDirectory

CLASSIFIERS = ("auto", "first-stage", "second-stage")


@dataclass(frozen=True)
class ClassifierChoice:
    """The chosen classifiers and the reason for them.

    Attributes:
        checkpoint: the checkpoint of the run that has them: `last` or `first-stage`.
        request: the points to fit, with the logit adjustment of these classifiers.
        why: the choice and the measurements behind it, in words; empty if there was nothing to choose.
    """

    checkpoint: Literal["last", "first-stage"]
    request: FamilyRequest
    why: str = ""


def choose_classifiers(
    run: RunDirectory, recipe: Recipe, request: FamilyRequest, table_of: Callable[[str], ExitTable]
) -> ClassifierChoice:
    """Choose the classifiers of a run.

    Args:
        recipe: that of the run.
        request: its field `classifiers` is `auto`, `first-stage` or `second-stage`; `auto` compares them, unless logits
            may not be adjusted.
        table_of: returns the exit table of the calibration split for the name of a checkpoint.

    Raises:
        RequestError: `first-stage` for a run that has none, or with logits that may not be adjusted.
    """
    if request.classifiers not in CLASSIFIERS:
        raise unknown_name("classifiers", request.classifiers, list(CLASSIFIERS))
    has_second_stage, has_first = recipe.refit.method == "balanced", run.checkpoint(FIRST_STAGE).is_file()
    if request.classifiers == "first-stage":
        _require_first_stage(run, request, has_second_stage=has_second_stage, has_first=has_first)
    elif request.classifiers == "second-stage" or request.adjust.adjust == "off" or not has_second_stage:
        return ClassifierChoice("last", request)
    elif request.risk.epsilons and request.risk.loss == "agreement":
        return ClassifierChoice("last", request, "of the second stage: promises of agreement use no labels to compare")
    elif not has_first:
        why = "of the second stage; those of the first are not kept in runs of earlier versions"
        return ClassifierChoice("last", request, why)
    adjusted = ClassifierChoice(FIRST_STAGE, request_for(FIRST_STAGE, request, recipe))
    if request.classifiers == "first-stage":
        return replace(adjusted, why="of the first stage with adjusted logits: as requested")
    compared = _compare(table_of("last"), table_of(FIRST_STAGE), request, adjusted.request.adjust)
    if compared is None:
        return ClassifierChoice("last", request, "of the second stage: the examples are too few to compare")
    measured = compared.describe("second stage", "first stage with adjusted logits")
    if compared.second_is_better:
        return replace(adjusted, why=f"of the first stage with adjusted logits ({measured})")
    return ClassifierChoice("last", request, f"of the second stage ({measured})")


def request_for(checkpoint: str, request: FamilyRequest, recipe: Recipe) -> FamilyRequest:
    """The request for the classifiers of a checkpoint: those of the first stage always have adjusted logits."""
    if checkpoint != FIRST_STAGE:
        return request
    return replace(request, adjust=Adjust(adjust="on", taus=request.adjust.taus, loss_scale=loss_scale(recipe)))


def _require_first_stage(run: RunDirectory, request: FamilyRequest, *, has_second_stage: bool, has_first: bool) -> None:
    if not has_second_stage:
        raise RequestError(
            f"the run in {run.root} has no second stage (refit.method=balanced), so its only classifiers are those of "
            "its training; leave the choice of classifiers out"
        )
    if not has_first:
        raise RequestError(
            f"the run in {run.root} was trained by a version that kept no classifiers of the first stage; train it "
            "again, or use those of the second stage"
        )
    if request.adjust.adjust == "off":
        raise RequestError(
            "the classifiers of the first stage are used with adjusted logits, and the logit adjustment is off; set it "
            "to auto (--logit-adjustment auto)"
        )


def _compare(
    second_stage: ExitTable, first_stage: ExitTable, request: FamilyRequest, adjust: Adjust
) -> PairedComparison | None:
    """Compare the classifiers of both stages; None if the examples or the classes do not allow it.

    Only the examples that no promise is certified on are used, so that promises stay valid.
    """
    require_calibration(second_stage)
    if request.risk.epsilons:
        second_stage, first_stage = (
            split_table(table, request.risk.fraction, request.risk.seed)[0] for table in (second_stage, first_stage)
        )
    if second_stage.examples < MIN_EXAMPLES or (second_stage.class_counts_C <= 0).any():
        return None
    old = TauFit.of(first_stage, adjust.taus, adjust.loss_scale)
    return PairedComparison.of(_right(second_stage, request.adjust), old.cross_validated(0)[1], old.labels_N)


def _right(second_stage: ExitTable, adjust: Adjust) -> NDArray[np.float64]:
    """Share of the exits at which each example is correct, shape (N,), with the logits that are used."""
    fit = TauFit.of(second_stage, adjust.taus, adjust.loss_scale)
    plain_N, adjusted_N = fit.cross_validated(0)
    return plain_N if adjust.choose(second_stage).adjustment is None else adjusted_N
