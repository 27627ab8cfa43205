"""How far a run is, and its checkpoints."""

from dataclasses import dataclass

import torch

from elfnet.checkpoint.format import Checkpoint, save_checkpoint
from elfnet.checkpoint.run_directory import RunDirectory
from elfnet.models.staged import StagedNetwork
from elfnet.train.optimiser import momentum_state


@dataclass
class RunState:
    """What changes from epoch to epoch besides weights and momentum."""

    epochs_done: int = 0
    best_score: float = -1.0
    best_epoch: int = -1
    seconds: float = 0.0
    distil_temperature: float | None = None


def keep(
    run: RunDirectory,
    signature: str,
    network: StagedNetwork,
    optimiser: torch.optim.Optimizer,
    state: RunState,
    score: float | None,
) -> None:
    """Write the checkpoints; `last` comes last, so that a kill in between runs the epoch again."""
    weights = network.state_dict()
    better = score is not None and score > state.best_score
    if better and score is not None:
        state.best_score, state.best_epoch = score, state.epochs_done - 1
    progress = {"best_score": state.best_score, "best_epoch": state.best_epoch, "seconds": state.seconds}
    if state.distil_temperature is not None:
        progress["distil_temperature"] = state.distil_temperature
    if better:
        save_checkpoint(Checkpoint(signature, state.epochs_done, weights, progress=progress), run.checkpoint("best"))
    momentum = momentum_state(optimiser, network)
    save_checkpoint(Checkpoint(signature, state.epochs_done, weights, momentum, progress), run.checkpoint("last"))
