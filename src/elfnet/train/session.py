"""A training run from recipe to last checkpoint: started, stopped at any moment, and gone on with.

Everything random is a function of (seed, epoch), and a checkpoint is written after every epoch, so a run that was
killed and resumed ends bit for bit where an undisturbed one ends, on the same processor, threads and settings.
"""

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from lightning_fabric import Fabric

from elfnet.checkpoint.format import Checkpoint, load_checkpoint, save_checkpoint
from elfnet.checkpoint.run_directory import RunDirectory
from elfnet.criterion.class_weights import class_weights
from elfnet.data.batches import EvaluationBatches, Normalisation, TrainingBatches
from elfnet.data.from_recipe import augmentation, load_splits
from elfnet.data.splits import Splits
from elfnet.errors import WorkError
from elfnet.evaluate.run_network import logits_of
from elfnet.models.cost import count_cost
from elfnet.models.from_recipe import network_of, network_signature
from elfnet.models.staged import StagedNetwork
from elfnet.recipe.schema import Recipe
from elfnet.train.epoch_statistics import head_classes
from elfnet.train.exiting_forward import ExitingForward
from elfnet.train.from_recipe import loss_of, rule_of, schedule_of
from elfnet.train.machine import Machine
from elfnet.train.observer import Observer, Silent
from elfnet.train.optimiser import build_sgd, momentum_state, restore_momentum
from elfnet.train.provenance import run_info
from elfnet.train.run_directory_checks import check_directory, require_same_data
from elfnet.train.run_log import open_loggers
from elfnet.train.trainer import Trainer


@dataclass
class _State:
    """What changes from epoch to epoch besides weights and momentum."""

    epochs_done: int = 0
    best_score: float = -1.0
    best_epoch: int = -1
    seconds: float = 0.0


def train_recipe(
    recipe: Recipe,
    out: str | Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    observer: Observer | None = None,
    stop_after: Callable[[int], bool] | None = None,
) -> RunDirectory:
    """Train a recipe into a run directory.

    Args:
        out: the run directory; made if it does not exist.
        resume: go on with the run that is there (a finished one is left as it is).
        overwrite: remove the run that is there first.
        stop_after: asked after every epoch with the number of epochs done; true stops the run there.

    Example:
        >>> from elfnet import load_recipe, train_recipe
        >>> run = train_recipe(load_recipe("digits/elf-ce-drw"), "runs/first")  # doctest: +SKIP
    """
    run = RunDirectory(Path(out))
    observer = observer or Silent()
    check_directory(run, recipe, resume=resume, overwrite=overwrite)
    splits = load_splits(recipe.data)
    normalisation = Normalisation.of(splits.train)
    channels = splits.train.images_NHWC.shape[-1]
    classes = len(splits.class_names)
    # What may be refused is tried before anything is written.
    rule_of(recipe, classes), schedule_of(recipe), loss_of(recipe.criterion, splits.class_counts_C.tolist())

    torch.manual_seed(recipe.train.seed)
    network = network_of(recipe.model, classes=classes, image_channels=channels)
    height, width = splits.train.images_NHWC.shape[1:3]
    if run.exists() and not overwrite:
        info = run.info()
        require_same_data(run, info, splits)
    else:
        info = run_info(recipe, splits, normalisation, count_cost(network, (channels, height, width)))
        # Only now that nothing can be refused any more is an old run removed.
        if run.exists():
            shutil.rmtree(run.root)
        run.create(recipe, info)
    machine = Machine(**info["machine"])
    torch.set_num_threads(machine.threads)

    state = _State()
    saved: Checkpoint | None = None
    signature = network_signature(recipe.model, classes=classes, image_channels=channels)
    if run.checkpoint("last").is_file():
        saved = load_checkpoint(run.checkpoint("last"), network=signature)
        network.load_state_dict(dict(saved.weights))
        state = _State(epochs_done=saved.epochs_done, **saved.progress)
    observer.started(recipe, info, state.epochs_done)
    if state.epochs_done >= recipe.train.epochs:
        return run

    trainer, optimiser = _assemble(recipe, splits, normalisation, network, machine, saved, observer)
    calibration = EvaluationBatches(
        splits.calibration, normalisation, batch_size=256, device=next(network.parameters()).device
    )
    loggers = open_loggers(run, recipe, state.epochs_done)
    try:
        while state.epochs_done < recipe.train.epochs:
            began = time.perf_counter()
            record = trainer.run_epoch(state.epochs_done)
            score = None
            if (state.epochs_done + 1) % recipe.train.evaluate_every == 0 or _is_last(state, recipe):
                score = _balanced_accuracy(network, calibration, splits, machine.precision)
            seconds = time.perf_counter() - began
            record |= {"calibration_balanced_accuracy": score, "seconds": round(seconds, 3)}
            for logger in loggers:
                logger.log(record)
            state.epochs_done += 1
            state.seconds += seconds
            _keep(run, signature, network, optimiser, state, score)
            observer.epoch(record)
            if stop_after is not None and stop_after(state.epochs_done):
                break
    except WorkError as error:
        kept = (
            f"the checkpoint after {state.epochs_done} epochs is intact" if state.epochs_done else "no epoch was done"
        )
        raise type(error)(f"{error} ({kept}: {run.root})") from error
    finally:
        for logger in loggers:
            logger.close()
    return run


def _assemble(
    recipe: Recipe,
    splits: Splits,
    normalisation: Normalisation,
    network: StagedNetwork,
    machine: Machine,
    saved: Checkpoint | None,
    observer: Observer,
) -> tuple[Trainer, torch.optim.Optimizer]:
    """Put the network where it is to run, and everything that trains it around it."""
    fabric = Fabric(
        accelerator=machine.device,
        devices=1,
        precision="bf16-mixed" if machine.precision == "bfloat16" else "32-true",
    )
    network.to(fabric.device)
    if machine.channels_last:
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    counts = splits.class_counts_C.tolist()
    forward = ExitingForward(network, rule_of(recipe, len(counts)), left=recipe.exits.left)
    optimiser = build_sgd(
        network, lr=recipe.train.lr, momentum=recipe.train.momentum, weight_decay=recipe.train.weight_decay
    )
    if saved is not None:
        restore_momentum(optimiser, network, saved.optimiser)
    pad, flip = augmentation(recipe.data, splits)
    batches = TrainingBatches(
        splits.train,
        normalisation,
        batch_size=recipe.train.batch_size,
        seed=recipe.train.seed,
        pad=pad,
        flip=flip,
        device=fabric.device,
        channels_last=machine.channels_last,
    )
    if machine.compile:
        forward.compile_for(batches.batch_size)
    trainer = Trainer(
        fabric=fabric,
        forward=forward,
        optimiser=optimiser,
        loss=loss_of(recipe.criterion, counts),
        class_weights_C=torch.from_numpy(
            class_weights(recipe.criterion.reweight, counts, beta=recipe.criterion.effective_beta)
        ),
        reweight=recipe.criterion.reweight,
        schedule=schedule_of(recipe),
        batches=batches,
        is_head_C=head_classes(counts),
        seed=recipe.train.seed,
        on_step=observer.step,
    )
    return trainer, optimiser


def _is_last(state: _State, recipe: Recipe) -> bool:
    return state.epochs_done + 1 == recipe.train.epochs


def _balanced_accuracy(network: StagedNetwork, batches: EvaluationBatches, splits: Splits, precision: str) -> float:
    """Mean recall over classes at full depth on the calibration split: what "best" means."""
    prediction_N = logits_of(network, batches, precision=precision)[:, -1].argmax(axis=1)
    labels_N = splits.calibration.labels_N
    return float(np.mean([(prediction_N[labels_N == c] == c).mean() for c in np.unique(labels_N)]))


def _keep(
    run: RunDirectory,
    signature: str,
    network: StagedNetwork,
    optimiser: torch.optim.Optimizer,
    state: _State,
    score: float | None,
) -> None:
    """Write the checkpoints; `last` comes last, so that a kill in between runs the epoch again."""
    weights = network.state_dict()
    better = score is not None and score > state.best_score
    if better and score is not None:
        state.best_score, state.best_epoch = score, state.epochs_done - 1
    progress = {"best_score": state.best_score, "best_epoch": state.best_epoch, "seconds": state.seconds}
    if better:
        save_checkpoint(Checkpoint(signature, state.epochs_done, weights, progress=progress), run.checkpoint("best"))
    momentum = momentum_state(optimiser, network)
    save_checkpoint(Checkpoint(signature, state.epochs_done, weights, momentum, progress), run.checkpoint("last"))
