"""How far a run is, and its checkpoints."""

from dataclasses import dataclass

import torch

from elfnet.checkpoint.format import Checkpoint, save_checkpoint
from elfnet.checkpoint.run_directory import RunDirectory
from elfnet.models.staged import StagedNetwork
from elfnet.train.ema import WeightAverage
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
