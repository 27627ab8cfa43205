"""Resume a run: its progress, saved in every checkpoint, restoring it, and checks that a run can be resumed."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from torch import Tensor

from elfnet.errors import RequestError, WorkError
from elfnet.models.build import resolve_defaults
from elfnet.models.staged import StagedNetwork
from elfnet.recipe.schema import Recipe
from elfnet.recipe.stages import total_epochs
from elfnet.run.checkpoint import Checkpoint, load_checkpoint, require_network, save_checkpoint, signature_of_run
from elfnet.run.directory import FIRST_STAGE, RunDirectory
from elfnet.run.info import RunInfo
from elfnet.run.log import resume_command
from elfnet.train.optimizer import optimizer_state
from elfnet.train.prepare import Prepared

if TYPE_CHECKING:
    from elfnet.train.build import Assembled

OTHER_RUN = "or start another run with --out"
"""What the user can do if a run cannot be resumed."""


@dataclass
class RunState:
    """Progress of a run, saved in every checkpoint next to the weights and the optimizer state.

    Attributes:
        epochs_done: number of finished epochs.
        best_score: highest balanced accuracy on the calibration split so far; -1 before the first evaluation.
        best_epoch: its 0-based epoch.
        seconds: time spent on the finished epochs.
        distil_temperature: of the distillation after the last epoch.
        ema_steps: updates of the moving average of weights.
    """

    epochs_done: int = 0
    best_score: float = -1.0
    best_epoch: int = -1
    seconds: float = 0.0
    distil_temperature: float | None = None
    ema_steps: int = 0


def restore(prepared: Prepared, run: RunDirectory, info: RunInfo) -> RunState:
    """Load the weights of the checkpoint to resume from into the network, and return the progress of the run."""
    network, saved, processes = prepared.network, prepared.saved, prepared.processes
    signature = signature_of_run(prepared.stage.recipe.model, info)
    if prepared.source is not None and processes.is_rank0:
        if prepared.recipe.refit.method == "balanced":
            keep_first_stage(run, prepared.source.network, prepared.source.epochs_done, prepared.source.weights)
        # A checkpoint of 0 epochs, so that the run can be resumed without its source run.
        save_checkpoint(Checkpoint(signature, 0, network.state_dict()), run.checkpoint("last"))
    if saved is None:
        return RunState()
    processes.fail_together(partial(require_network, saved, signature, run.checkpoint("last")))
    if saved.epochs_done < total_epochs(prepared.recipe) and "heads.0.frequent.classifier.weight" in saved.weights:
        raise RequestError(
            f"the BBN run in {run.root} was begun by a version before 0.2, with two classifiers; finish it with that "
            "version, or start over with --overwrite"
        )
    network.load_state_dict(dict(saved.trained_weights or saved.weights))
    return RunState(epochs_done=saved.epochs_done, **saved.progress)


def keep_first_stage(run: RunDirectory, signature: str, epochs_done: int, weights: Mapping[str, Tensor]) -> None:
    """Save the weights that a second stage starts from. Calibration chooses between its classifiers and these."""
    save_checkpoint(Checkpoint(signature, epochs_done, weights), run.checkpoint(FIRST_STAGE))


def note_score(state: RunState, score: float | None) -> bool:
    """Update the best epoch by the score of the last one; returns whether it is the best so far."""
    if score is None or score <= state.best_score:
        return False
    state.best_score, state.best_epoch = score, state.epochs_done - 1
    return True


def keep(
    run: RunDirectory,
    signature: str,
    network: StagedNetwork,
    assembled: "Assembled",
    state: RunState,
    *,
    better: bool,
    final: str | None = None,
) -> None:
    """Save the checkpoint `last`, and before it `best` if the epoch is the best so far.

    A kill between the two writes makes a resumed run repeat the epoch.

    Args:
        signature: of the network; checked on loading.
        assembled: its optimizer state and exit history are saved as well. The weights to evaluate are those of its
            moving average, if there is one.
        better: from `note_score`.
        final: in the last epoch of a run, which weights it keeps: `last` or `best`; None in the others.
    """
    average, pruning = assembled.average, assembled.pruning
    weights = network.state_dict() if average is None else average.network.state_dict()
    progress = {"best_score": state.best_score, "best_epoch": state.best_epoch, "seconds": state.seconds}
    if state.distil_temperature is not None:
        progress["distil_temperature"] = state.distil_temperature
    if average is not None:
        progress["ema_steps"] = average.steps
    if better:
        save_checkpoint(Checkpoint(signature, state.epochs_done, weights, progress=progress), run.checkpoint("best"))
    momentum, trained = optimizer_state(assembled.optimiser, network), {} if average is None else network.state_dict()
    if final == "best" and not better and state.best_epoch >= 0:
        weights, trained = dict(load_checkpoint(run.checkpoint("best")).weights), network.state_dict()
    history = None if pruning is None else pruning.history.streak_N
    last = Checkpoint(signature, state.epochs_done, weights, momentum, progress, trained, history)
    save_checkpoint(last, run.checkpoint("last"))


def check_directory(run: RunDirectory, recipe: Recipe, *, resume: bool, overwrite: bool) -> None:
    """Refuse a run directory that contradicts `resume` and `overwrite`, or holds a run of another recipe."""
    if resume and overwrite:
        raise RequestError("--resume and --overwrite contradict each other; give one of them")
    if run.exists() and overwrite:
        return
    if run.exists() and not resume:
        raise RequestError(
            f"{run.root} holds a run already; give --overwrite or another --out, or continue it with: "
            f"{resume_command(run.root)}"
        )
    if run.exists():
        _require_same_recipe(run, recipe)
        # The log is written before the checkpoint, so a second record proves that there was a checkpoint.
        if not run.checkpoint("last").is_file() and len(run.log()) > 1:
            raise WorkError(f"{run.checkpoint('last')} is missing; put it back, or start over with --overwrite")
    elif resume and not run.root.exists():
        raise RequestError(f"there is no run in {run.root} to resume; leave --resume out to start one")
    elif not run.is_free():
        raise RequestError(f"{run.root} exists and is not a run; give another --out")


def _require_same_recipe(run: RunDirectory, recipe: Recipe) -> None:
    # Defaults of the backbone may be implicit in one recipe and explicit in the other.
    stored, requested = (
        content.model_copy(update={"model": resolve_defaults(content.model)}).model_dump()
        for content in (run.recipe(), recipe)
    )
    for section, fields in requested.items():
        for name, value in fields.items():
            if stored[section][name] != value:
                raise RequestError(
                    f"the run in {run.root} has {section}.{name}={stored[section][name]}, not {value}; "
                    "resume it without this setting, or start another run with --out"
                )
