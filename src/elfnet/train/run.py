"""A training run from recipe to last checkpoint: started, stopped at any moment, and gone on with.

Everything random is a function of (seed, epoch), and a checkpoint is written after every epoch, so a run that was
killed and resumed ends bit for bit where an undisturbed one ends, on the same processor, threads and settings.

Where several processes train together, each runs this with its share of every batch; only the first one writes.
"""

import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from elfnet.data.build import load_splits
from elfnet.data.loading.build import normalisation_of
from elfnet.data.loading.feed import EvaluationFeed
from elfnet.data.loading.normalise import Normalisation
from elfnet.data.splits import Splits
from elfnet.errors import RequestError, WorkError
from elfnet.exits.threshold import parse_threshold
from elfnet.methods.refit.build import start_from_run
from elfnet.models.build import load_initial_weights, network_of
from elfnet.models.flops import count_cost
from elfnet.models.run_network import signature_of_run
from elfnet.models.staged import StagedNetwork
from elfnet.recipe.schema import Recipe
from elfnet.recipe.stages import Stage, final_model, stage_of_weights, stages_of, total_epochs
from elfnet.run.checkpoint import Checkpoint, load_checkpoint, require_network
from elfnet.run.directory import RunDirectory
from elfnet.train.build import assemble, exit_loss_of, loss_of, rule_of, schedule_of
from elfnet.train.distributed import DistributedContext
from elfnet.train.external_network import choose_network, require_same_network
from elfnet.train.launch import (
    Launch,
    leave_when_done,
    lost_others,
    refuse_empty_shards,
    refuse_mixed_features,
    refuse_uneven_batches,
    restarted,
    start,
)
from elfnet.train.logging import Logger, Observer, Silent, open_loggers
from elfnet.train.machine import Machine, device_and_precision, fabric_precision, run_info, tune_malloc
from elfnet.train.pruning import require_floor
from elfnet.train.refit import check_source, fit_run, is_fitted, keep_start
from elfnet.train.second_stage import second_stage_network, second_stage_state
from elfnet.train.state import RunState, check_directory, keep, require_same_data, require_same_precision
from elfnet.train.statistics import calibration_score, predictions


def train_recipe(
    recipe: Recipe,
    out: str | Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    observer: Observer | None = None,
    stop_after: Callable[[int], bool] | None = None,
    launch: Launch | None = None,
    network: StagedNetwork | None = None,
) -> RunDirectory:
    """Train a recipe into a run directory.

    Args:
        out: the run directory; made if it does not exist.
        resume: go on with the run that is there (a finished one is left as it is), on any number of devices.
        overwrite: remove the run that is there first.
        stop_after: asked after every epoch with the number of epochs done; true (in any process) stops the run there.
        launch: how many processes train together. More than one run the caller's whole script, each up to here.
        network: trained in place instead of the recipe's own (see `attach_exits`); the recipe's model section is then
            not used. Every later call that runs the network needs it too.

    Example:
        >>> from elfnet import load_recipe, train_recipe
        >>> run = train_recipe(load_recipe("digits/elf-ce-drw"), "runs/first")  # doctest: +SKIP
    """
    run = RunDirectory(Path(out))
    launch = (launch or Launch()).settled()
    refuse_uneven_batches(recipe.train.batch_size, recipe.train.accumulate, launch)
    refuse_mixed_features(recipe.train.mix, launch)
    if restarted():
        # torchrun repeats the command it was given, which speaks of a run that did not exist then.
        resume, overwrite = run.exists(), False
    check_source(recipe, run, overwrite=overwrite, given=network)
    with ExitStack() as stack:
        if launch.world_size == 1:
            stack.enter_context(run.lock())
        if is_fitted(recipe):
            return fit_run(recipe, run, resume=resume, overwrite=overwrite, observer=observer, launch=launch)
        return _train_locked(
            recipe,
            run,
            resume=resume,
            overwrite=overwrite,
            observer=observer,
            stop_after=stop_after,
            launch=launch,
            network=network,
            stack=stack,
        )


def _train_locked(
    recipe: Recipe,
    run: RunDirectory,
    *,
    resume: bool,
    overwrite: bool,
    observer: Observer | None,
    stop_after: Callable[[int], bool] | None,
    launch: Launch,
    network: StagedNetwork | None,
    stack: ExitStack,
) -> RunDirectory:
    """Train with the run directory locked: by the caller if there is one process, else here by the first of them."""
    if launch.world_size == 1:
        check_directory(run, recipe, resume=resume, overwrite=overwrite)
    kept = run.info()["machine"] if run.exists() and not overwrite else None
    device, precision = device_and_precision(recipe.train, kept)
    processes = DistributedContext(start(launch, device=device, precision=fabric_precision(precision)))
    if launch.world_size > 1:
        processes.broadcast_from_rank0(lambda: stack.enter_context(run.lock()))
        processes.broadcast_from_rank0(lambda: check_directory(run, recipe, resume=resume, overwrite=overwrite))
    observer = observer if observer is not None and processes.is_rank0 else Silent()
    try:
        _train(
            recipe,
            run,
            overwrite=overwrite,
            observer=observer,
            stop_after=stop_after,
            processes=processes,
            given=network,
        )
    except RuntimeError as error:
        lost = None if isinstance(error, WorkError) else lost_others(error, launch)
        if lost is None:
            raise
        raise lost from error
    if launch.world_size > 1:
        leave_when_done()
    return run


def _train(
    recipe: Recipe,
    run: RunDirectory,
    *,
    overwrite: bool,
    observer: Observer,
    stop_after: Callable[[int], bool] | None,
    processes: DistributedContext,
    given: StagedNetwork | None,
) -> None:
    splits, normalisation = processes.rank0_first(lambda: _data(recipe))
    (height, width, channels), classes = splits.train.example_shape, len(splits.class_names)
    # A run that goes on has its weights in its checkpoint; one that was stopped before the first starts as it did.
    goes_on = processes.any(processes.is_rank0 and run.checkpoint("last").is_file() and not overwrite)
    saved = processes.fail_together(lambda: load_checkpoint(run.checkpoint("last"))) if goes_on else None
    stage = stage_of_weights(recipe, 0 if saved is None else saved.epochs_done)
    torch.manual_seed(recipe.train.seed)
    network, described = choose_network(
        given, stage.recipe, classes=classes, image_shape=(channels, height, width), processes=processes
    )
    loaded = processes.fail_together(lambda: None if goes_on else load_initial_weights(recipe.model, network))
    # Refused here, before an old run is removed: an empty share, another number of weights than exits.
    processes.fail_together(lambda: refuse_empty_shards(recipe, len(splits.train), processes.world_size))
    processes.fail_together(lambda: exit_loss_of(stage.recipe, splits.class_counts_C.tolist(), network.exits))
    started = processes.fail_together(
        lambda: None if goes_on else start_from_run(recipe, network, splits, out=run.root)
    )
    final = network
    if given is None and final_model(recipe) != stage.recipe.model:
        final = network_of(final_model(recipe), classes=classes, image_channels=channels)
    info: dict[str, Any] = processes.broadcast_from_rank0(
        lambda: _opened(
            recipe,
            run,
            splits,
            normalisation,
            final,
            None if loaded is None else loaded.record(),
            described,
            started,
            overwrite=overwrite,
            processes=processes,
        )
    )
    machine = Machine(**info["machine"])
    processes.fail_together(lambda: require_same_precision(machine, processes.fabric))
    # The threads of a node, divided among as many processes as it has now.
    torch.set_num_threads(max(1, machine.threads * info.get("devices", 1) // processes.on_this_node))
    # Not where examples are dropped: blocks of ever new sizes would leave ever more of the heap unused.
    if machine.device == "cpu" and recipe.exits.after_exit != "drop":
        tune_malloc()

    state = RunState()
    if started is not None and processes.is_rank0:
        keep_start(run, signature_of_run(stage.recipe.model, info), network)
    if saved is not None:
        signature = signature_of_run(stage.recipe.model, info)
        processes.fail_together(partial(require_network, saved, signature, run.checkpoint("last")))
        network.load_state_dict(dict(saved.trained_weights or saved.weights))
        state = RunState(epochs_done=saved.epochs_done, **saved.progress)
    observer.started(recipe, info, state.epochs_done)
    if state.epochs_done >= total_epochs(recipe):
        return

    loggers = open_loggers(run, recipe, state.epochs_done) if processes.is_rank0 else []
    loop = _Loop(recipe, run, splits, normalisation, machine, info, observer, stop_after, processes, loggers)
    try:
        for following in stages_of(recipe):
            if state.epochs_done >= following.end:
                continue
            if following.name != stage.name:
                weights = network.state_dict() if saved is None else saved.weights
                stage, saved, state = following, None, second_stage_state(state)
                network = second_stage_network(stage, weights, classes=classes, image_channels=channels)
            network, stopped = loop.run(stage, network, state, saved)
            if stopped:
                break
            saved = None
    finally:
        for logger in loggers:
            logger.close()


@dataclass(frozen=True)
class _Loop:
    """What the epochs of all stages of a run share."""

    recipe: Recipe
    directory: RunDirectory
    splits: Splits
    normalisation: Normalisation
    machine: Machine
    info: dict[str, Any]
    observer: Observer
    stop_after: Callable[[int], bool] | None
    processes: DistributedContext
    loggers: list[Logger]

    def run(
        self, stage: Stage, network: StagedNetwork, state: RunState, saved: Checkpoint | None
    ) -> tuple[StagedNetwork, bool]:
        """Train a stage to its end, or until the run is stopped.

        Args:
            network: of the stage, with the weights that it goes on from.
            state: how far the run is; changed in place.
            saved: the checkpoint that the stage goes on from; None where it starts.

        Returns:
            The network as it is evaluated, and whether the run was stopped.
        """
        processes, recipe = self.processes, stage.recipe
        signature = signature_of_run(recipe.model, self.info)
        assembled = assemble(
            recipe,
            self.splits,
            self.normalisation,
            network,
            self.machine,
            saved,
            self.observer,
            processes,
            first_epoch=stage.first,
        )
        batches, evaluated = assembled.batches, assembled.evaluated(network)
        epochs_kept, stopped = state.epochs_done, False
        try:
            while not stopped and state.epochs_done < stage.end:
                began = time.perf_counter()
                record = assembled.trainer.run_epoch(state.epochs_done)
                processes.average_statistics(network, evaluated)
                score = None
                if (state.epochs_done + 1) % recipe.train.evaluate_every == 0 or state.epochs_done + 1 == stage.end:
                    score = self._score(evaluated, assembled.calibration)
                seconds = time.perf_counter() - began
                record |= {"calibration_balanced_accuracy": score, "seconds": round(seconds, 3)}
                if self.recipe.refit.method == "balanced":
                    record["stage"] = stage.name
                if recipe.data.unreadable == "skip":
                    # Different images that any one process met: at least as many as this, as all meet all in time.
                    record["unreadable"] = max(processes.all_gather(batches.skipped()))
                for logger in self.loggers:
                    logger.log(record)
                state.epochs_done += 1
                state.seconds += seconds
                state.distil_temperature = record.get("distil_temperature")
                if processes.is_rank0:
                    keep(
                        self.directory,
                        signature,
                        network,
                        assembled.optimiser,
                        state,
                        score,
                        assembled.average,
                        assembled.pruning,
                    )
                epochs_kept = state.epochs_done
                self.observer.epoch(record)
                stopped = processes.any(self.stop_after is not None and self.stop_after(state.epochs_done))
        except WorkError as error:
            kept = (
                f"the checkpoint after {epochs_kept} epochs is intact" if epochs_kept else "there is no checkpoint yet"
            )
            raise type(error)(f"{error} ({kept}: {self.directory.root})") from error
        finally:
            batches.close()
        return evaluated, stopped

    def _score(self, network: StagedNetwork, calibration: EvaluationFeed) -> float:
        labels_N = self.splits.calibration.labels_N
        prediction_N = predictions(
            network, calibration, len(labels_N), precision=self.machine.precision, processes=self.processes
        )
        return calibration_score(prediction_N, labels_N)


def _data(recipe: Recipe) -> tuple[Splits, Normalisation]:
    splits = load_splits(recipe.data)
    # What may be refused is tried before anything is written.
    for stage in stages_of(recipe):
        rule_of(stage.recipe, len(splits.class_names)), schedule_of(stage.recipe)
        loss_of(stage.recipe, splits.class_counts_C.tolist())
    for threshold in recipe.exits.search:
        parse_threshold(threshold, classes=len(splits.class_names))
    _refuse_one_class(splits.calibration.labels_N)
    if recipe.train.prune:
        require_floor(recipe.train.prune_floor, splits.class_counts_C, splits.class_names)
    if recipe.train.resize_start < 1 and splits.train.example_shape[0] == 1:
        raise RequestError(
            f"train.resize_start={recipe.train.resize_start:g} resizes images, and {recipe.data.source} has rows of "
            "features; set it to 1"
        )
    return splits, normalisation_of(recipe.data, splits)


def _refuse_one_class(labels_N: NDArray[np.int64]) -> None:
    """Of the calibration split: what is chosen on a single class is chosen on nothing."""
    if len(np.unique(labels_N)) < 2:
        raise RequestError(
            f"all {len(labels_N)} examples of the calibration split are of one class; "
            "name or hold out one that has several (data.calibration, data.calibration_per_class)"
        )


def _opened(
    recipe: Recipe,
    run: RunDirectory,
    splits: Splits,
    normalisation: Normalisation,
    network: StagedNetwork,
    weights: dict[str, Any] | None,
    described: dict[str, Any] | None,
    started: dict[str, Any] | None,
    *,
    overwrite: bool,
    processes: DistributedContext,
) -> dict[str, Any]:
    """What is written of the run: of the one that is there, or of one that is begun now."""
    if run.exists() and not overwrite:
        info = run.info()
        require_same_data(run, info, splits)
        require_same_network(run, info, described)
        return info
    height, width, channels = splits.train.example_shape
    info = run_info(recipe, splits, normalisation, count_cost(network, (channels, height, width)))
    info |= {"devices": processes.on_this_node, "nodes": processes.world_size // processes.on_this_node}
    if weights is not None:
        info["weights"] = weights
    if described is not None:
        info["network"] = described
    if started is not None:
        info["refit"] = started
    # Only now that nothing can be refused any more is an old run removed.
    if run.exists():
        shutil.rmtree(run.root)
    run.create(recipe, info)
    return info
