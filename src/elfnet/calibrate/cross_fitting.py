"""Cross-fitting: operating points of a run without calibration images.

One network per fold is trained without the training examples of that fold, and computes their logits. Joined, these are
an exit table of all training examples in which no logits come from a network that saw the example. Thresholds are
chosen on it for the final network, which is trained on all examples. Its accuracies are estimates: they are of other
networks, trained on fewer examples. So no point carries a promise.
"""

# Shapes: N examples, K folds

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from elfnet.calibrate.family_request import FamilyRequest, RiskPoints
from elfnet.calibrate.risk.bounds import METHODS, fewest_examples
from elfnet.calibrate.risk.losses import loss_form
from elfnet.errors import RequestError, WorkError
from elfnet.evaluate.exit_table import CROSS_FITTING, ExitTable
from elfnet.evaluate.run import evaluate_run
from elfnet.models.staged import StagedNetwork
from elfnet.recipe.stages import recipes_of_folds
from elfnet.run.checkpoint import is_finished, load_checkpoint
from elfnet.run.directory import RunDirectory
from elfnet.run.log import resume_command


@dataclass(frozen=True, eq=False)
class CrossFitted:
    """The joined exit table of a run, and the fold of each of its examples.

    Attributes:
        table: of the split `cross-fitting`; class counts and checkpoint are those of the final network.
        fold_N: 0 to K - 1, in the order of the table.
    """

    table: ExitTable
    fold_N: NDArray[np.int64]


def cross_fitted_table(
    run: RunDirectory, *, checkpoint: str = "last", device: str = "cpu", network: StagedNetwork | None = None
) -> CrossFitted:
    """Compute the exit table of every fold by the network that was trained without it, join them and store the result.

    Args:
        run: a finished run with `data.cross_fitting`.
        checkpoint: that of every network: `last`, or `first-stage` for the classifiers of the first stage.
        device: device that computes the logits.
        network: the network, if the run was trained with a network object from the caller; see `evaluate_run`.

    Raises:
        WorkError: the network of a fold is missing or not finished.
    """
    tables = []
    for number, recipe in recipes_of_folds(run.recipe()).items():
        fold = run.fold(number)
        last = fold.checkpoint("last")
        if not (last.is_file() and is_finished(recipe, load_checkpoint(last))):
            raise WorkError(
                f"network {number} of cross-fitting ({fold.root}) is not trained; finish it with: "
                f"{resume_command(run.root)}"
            )
        tables.append(evaluate_run(fold, "calibration", checkpoint=checkpoint, device=device, network=network))
    table = replace(
        tables[0],
        logits_NEC=np.concatenate([np.asarray(one.logits_NEC) for one in tables]),
        labels_N=np.concatenate([one.labels_N for one in tables]),
        class_counts_C=np.array(run.info().data.class_counts, dtype=np.int64),
        split=CROSS_FITTING,
        checkpoint_sha256=load_checkpoint(run.checkpoint(checkpoint)).sha256,
    )
    table.save(run.table(CROSS_FITTING, checkpoint))
    return CrossFitted(table, np.repeat(np.arange(len(tables)), [one.examples for one in tables]))


def without_promises(request: FamilyRequest, classes: int) -> tuple[FamilyRequest, tuple[str, ...]]:
    """Take the points with a promise out of a request, and say how many images they would need.

    Args:
        request: its points `risk=E` and `within-X` promise a largest loss of accuracy.
        classes: number of classes.

    Raises:
        RequestError: the user asks for a promise.
    """
    risk = request.risk
    promised = {f"risk={epsilon:g}": epsilon for epsilon in risk.epsilons}
    promised |= {f"within-{lost:g}": lost / 100 for lost in request.floors_points if 0 < lost < 100}
    needs = {name: _images_per_class(risk, epsilon, classes) for name, epsilon in promised.items()}
    listed = ", ".join(f"{name} {images:,}" for name, images in needs.items())
    way_out = "train with --data.cross_fitting 0 --data.calibration_per_class N, or name them with --data.calibration"
    if risk.required:
        raise RequestError(
            f"estimates by cross-fitting carry no promise; calibration images needed per class: {listed}; {way_out}"
        )
    notes = (f"no promises; calibration images that they need per class: {listed}; {way_out}",) if needs else ()
    return replace(request, risk=RiskPoints(epsilons=()), floors_points=()), notes


def _images_per_class(risk: RiskPoints, epsilon: float, classes: int) -> int:
    """Calibration images per class with which a point that loses nothing would get its promise, in a balanced split."""
    method = METHODS[risk.method]
    form = loss_form(risk.loss, prefers_signed=method.prefers_signed)
    certified = fewest_examples(epsilon=epsilon, delta=risk.delta, method=method, form=form)
    return int(np.ceil(certified / (1 - risk.fraction) / classes))
