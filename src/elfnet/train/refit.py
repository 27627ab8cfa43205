"""Runs that start from a finished run: check the source run, and fit classifiers without training.

A fitted run has an ordinary run directory, so that all commands on runs accept it.
"""

import time

import torch

from elfnet.data.build import load_splits
from elfnet.data.loading.build import evaluation_batches, normalisation_of
from elfnet.data.loading.normalise import Normalisation
from elfnet.data.splits import Splits
from elfnet.errors import RequestError
from elfnet.evaluate.metrics import balanced_accuracy
from elfnet.evaluate.run import answers_at_full_depth
from elfnet.methods.refit.build import fit_classifiers, is_second_stage, open_source
from elfnet.models.build import network_of
from elfnet.models.flops import count_cost
from elfnet.models.staged import StagedNetwork
from elfnet.recipe.schema import Recipe
from elfnet.run.checkpoint import Checkpoint, save_checkpoint, signature_of_run
from elfnet.run.directory import RunDirectory
from elfnet.run.info import RunInfo
from elfnet.train.launch import Launch
from elfnet.train.logging import Observer, Silent
from elfnet.train.machine import run_info
from elfnet.train.resume import OTHER_RUN, check_directory

TRAIN_FIELDS_OF_SOURCE = ("epochs", "schedule_epochs", "drw_start", "mix", "mix_alpha")


def check_source(recipe: Recipe, run: RunDirectory, *, overwrite: bool, given: StagedNetwork | None) -> None:
    """Refuse a source run (`refit.run`) that does not fit the recipe, before anything is loaded.

    A run that has a checkpoint no longer needs its source run.

    Args:
        recipe: one with a refit.
        given: the network that the caller passed, which no refit accepts.
    """
    if given is not None:
        raise RequestError(
            f"refit.method={recipe.refit.method} needs to know the classifiers of the network; leave network= out, or "
            "set refit.method=none"
        )
    if is_second_stage(recipe) and recipe.refit.epochs:
        return
    if overwrite or not run.checkpoint("last").is_file():
        open_source(recipe, out=run.root)


def fit_run(
    recipe: Recipe, run: RunDirectory, *, resume: bool, overwrite: bool, observer: Observer | None, launch: Launch
) -> RunDirectory:
    """Fit the classifiers of a source run into a new run directory; for arguments see `train_recipe`.

    The stored recipe has the training settings of the source run, because its network was trained with them.
    """
    if launch.world_size > 1:
        raise RequestError(
            f"refit.method={recipe.refit.method} does not train: one process is enough, leave --devices out"
        )
    observer = observer or Silent()
    if run.exists() and not overwrite:
        recipe = _with_training_of(recipe, run.recipe())
    check_directory(run, recipe, resume=resume, overwrite=overwrite)
    if run.checkpoint("last").is_file() and not overwrite:
        info = run.info()
        info.require_same_data(load_splits(recipe.data).fingerprint, where=run.root, way_out=OTHER_RUN)
        observer.started(recipe, info, recipe.train.epochs)
        return run
    began = time.perf_counter()
    source = open_source(recipe, out=run.root)
    recipe = _with_training_of(recipe, source.recipe)
    splits = load_splits(recipe.data)
    source.require_same_examples(recipe.data, splits)
    normalisation = normalisation_of(recipe.data, splits)
    height, width, channels = splits.train.example_shape
    network = network_of(recipe.model, classes=len(splits.class_names), image_channels=channels)
    network.load_state_dict(dict(source.checkpoint.weights))
    # Features are computed as in evaluation: float32, not compiled.
    computing = recipe.train.model_copy(update={"compile": "off", "precision": "float32"})
    cost = count_cost(network, (channels, height, width))
    info = run_info(recipe.model_copy(update={"train": computing}), splits, normalisation, cost)
    torch.set_num_threads(info.machine.threads)
    network.to(torch.device(info.machine.device))
    fitted, remarks = fit_classifiers(recipe, network, splits, normalisation)
    score = _calibration_score(recipe, network, splits, normalisation)
    method = recipe.refit.method
    summary = "; ".join([f"{method} of {source.named} ({source.checkpoint.epochs_done} epochs)", *remarks])
    record = source.record(method, summary, fitted).model_copy(update={"calibration_balanced_accuracy": score})
    info = info.model_copy(update={"devices": 1, "nodes": 1, "refit": record})
    # All checks have passed; only now is an old run removed.
    if run.exists():
        run.remove()
    run.create(recipe, info)
    _save(run, recipe, info, network, score=score, seconds=time.perf_counter() - began)
    observer.started(recipe, info, 0)
    return run


def _with_training_of(recipe: Recipe, source: Recipe) -> Recipe:
    """The recipe with the loss, length and rule that the network of the source run was trained with."""
    train = {name: getattr(source.train, name) for name in TRAIN_FIELDS_OF_SOURCE}
    return recipe.model_copy(
        update={
            "criterion": source.criterion,
            "exits": recipe.exits.model_copy(update={"rule": source.exits.rule}),
            "train": recipe.train.model_copy(update=train),
        }
    )


def _calibration_score(
    recipe: Recipe, network: StagedNetwork, splits: Splits, normalisation: Normalisation
) -> float | None:
    """Balanced accuracy at full depth on the calibration split; None if there is none."""
    if not len(splits.calibration):
        return None
    device = next(network.parameters()).device
    batches = evaluation_batches(recipe.data, splits.calibration, normalisation, device=device)
    prediction_N = answers_at_full_depth(network, batches)
    return balanced_accuracy(prediction_N, splits.calibration.labels_N[batches.rows()])


def _save(
    run: RunDirectory,
    recipe: Recipe,
    info: RunInfo,
    network: StagedNetwork,
    *,
    score: float | None,
    seconds: float,
) -> None:
    """Save the weights as both checkpoints, `best` and `last`."""
    epochs = recipe.train.epochs
    progress = {"best_score": -1.0 if score is None else score, "best_epoch": epochs - 1, "seconds": seconds}
    kept = Checkpoint(signature_of_run(recipe.model, info), epochs, network.state_dict(), progress=progress)
    for which in ("best", "last"):
        save_checkpoint(kept, run.checkpoint(which))
