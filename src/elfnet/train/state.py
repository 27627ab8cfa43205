"""How far a run is, and its checkpoints."""

from dataclasses import dataclass
from typing import Any

import torch
from lightning_fabric import Fabric

from elfnet.data.splits import Splits
from elfnet.errors import RequestError, WorkError
from elfnet.models.build import resolve_defaults
from elfnet.models.staged import StagedNetwork
from elfnet.recipe.schema import Recipe
from elfnet.run.checkpoint import Checkpoint, save_checkpoint
from elfnet.run.directory import RunDirectory
from elfnet.train.ema import WeightAverage
from elfnet.train.machine import Machine, fabric_precision
from elfnet.train.optimizer import optimizer_state
from elfnet.train.pruning import Pruning


@dataclass
class RunState:
    """What changes from epoch to epoch besides weights and momentum."""

    epochs_done: int = 0
    best_score: float = -1.0
    best_epoch: int = -1
    seconds: float = 0.0
    distil_temperature: float | None = None
    ema_steps: int = 0


def keep(
    run: RunDirectory,
    signature: str,
    network: StagedNetwork,
    optimiser: torch.optim.Optimizer,
    state: RunState,
    score: float | None,
    average: WeightAverage | None = None,
    pruning: Pruning | None = None,
) -> None:
    """Write the checkpoints; `last` comes last, so that a kill in between runs the epoch again.

    Args:
        average: of the network's weights, if there is one: it is what is evaluated.
        pruning: its history is kept, too.
    """
    weights = network.state_dict() if average is None else average.network.state_dict()
    better = score is not None and score > state.best_score
    if better and score is not None:
        state.best_score, state.best_epoch = score, state.epochs_done - 1
    progress = {"best_score": state.best_score, "best_epoch": state.best_epoch, "seconds": state.seconds}
    if state.distil_temperature is not None:
        progress["distil_temperature"] = state.distil_temperature
    if average is not None:
        progress["ema_steps"] = average.steps
    if better:
        save_checkpoint(Checkpoint(signature, state.epochs_done, weights, progress=progress), run.checkpoint("best"))
    momentum, trained = optimizer_state(optimiser, network), {} if average is None else network.state_dict()
    history = None if pruning is None else pruning.history.streak_N
    last = Checkpoint(signature, state.epochs_done, weights, momentum, progress, trained, history)
    save_checkpoint(last, run.checkpoint("last"))


def check_directory(run: RunDirectory, recipe: Recipe, *, resume: bool, overwrite: bool) -> None:
    if resume and overwrite:
        raise RequestError("--resume and --overwrite contradict each other; give one of them")
    if run.exists() and overwrite:
        return
    if run.exists() and not resume:
        raise RequestError(f"{run.root} holds a run already; give --resume, --overwrite, or another --out")
    if run.exists():
        _require_same_recipe(run, recipe)
        # The log is written before the checkpoint, so its second epoch tells that there was one.
        if not run.checkpoint("last").is_file() and len(run.log()) > 1:
            raise WorkError(f"{run.checkpoint('last')} is missing; put it back, or start over with --overwrite")
    elif resume and not run.root.exists():
        raise RequestError(f"there is no run in {run.root} to resume; leave --resume out to start one")
    elif run.root.exists() and (not run.root.is_dir() or any(run.root.iterdir())):
        raise RequestError(f"{run.root} exists and is not a run; give another --out")


def _require_same_recipe(run: RunDirectory, recipe: Recipe) -> None:
    # What a recipe leaves to the backbone may be written out in the other: the same run in other words.
    there, asked = (
        content.model_copy(update={"model": resolve_defaults(content.model)}).model_dump()
        for content in (run.recipe(), recipe)
    )
    for section, fields in asked.items():
        for name, value in fields.items():
            if there[section][name] != value:
                raise RequestError(
                    f"the run in {run.root} has {section}.{name}={there[section][name]}, not {value}; "
                    "resume it as it is, or start another with --out"
                )


def require_same_data(run: RunDirectory, info: dict[str, Any], splits: Splits) -> None:
    if info["data"]["fingerprint"] != splits.fingerprint:
        raise WorkError(
            f"the data is not what the run in {run.root} began with; restore it, or start another with --out"
        )


def require_same_precision(machine: Machine, fabric: Fabric) -> None:
    """`auto` may mean another precision on another node."""
    here = fabric.strategy.precision.precision
    if here != fabric_precision(machine.precision):
        raise RequestError(
            f"the first process computes in {machine.precision}, and process {fabric.global_rank} would in {here}; "
            "set train.precision=float32"
        )
