"""A training run, from its recipe to its last checkpoint: prepare, open or create the run, train, finish.

Everything random is a function of the seed and the epoch, and a checkpoint is written after every epoch. A run that is
killed and resumed ends with bit-identical weights, given the same processor, number of threads and settings.

With several processes, each runs this code on its shard of every batch. Only rank 0 writes.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from elfnet.errors import WorkError
from elfnet.methods.refit.build import FITTED
from elfnet.models.flops import costly_exits, count_cost
from elfnet.models.staged import StagedNetwork
from elfnet.recipe.schema import Recipe
from elfnet.recipe.stages import Stage, stages_of, stops_early, total_epochs
from elfnet.run.checkpoint import Checkpoint, is_finished, signature_of_run
from elfnet.run.directory import RunDirectory
from elfnet.run.info import RunInfo
from elfnet.run.log import EpochRecord
from elfnet.train.automatic import adopt_known, set_up_in_rank0
from elfnet.train.build import Assembled, assemble, scored_split, second_stage_network, second_stage_state
from elfnet.train.cross_fitting import train_folds
from elfnet.train.distributed import DistributedContext
from elfnet.train.epoch_statistics import calibration_score, predictions
from elfnet.train.external_network import require_same_network
from elfnet.train.launch import (
    Launch,
    refuse_mixed_features,
    refuse_uneven_batches,
    report_lost_processes,
    restarted,
    start,
)
from elfnet.train.logging import Logger, Observer, Silent, Watch, early_stop_note, open_loggers
from elfnet.train.machine import device_and_precision, fabric_precision, run_info, set_up_machine
from elfnet.train.prepare import Prepared, prepare
from elfnet.train.refit import check_source, fit_run
from elfnet.train.resume import OTHER_RUN, RunState, check_directory, keep, keep_first_stage, note_score, restore


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
        out: the run directory; created if it does not exist.
        resume: continue the run in `out`, on any number of devices. A finished run is not changed.
        overwrite: remove the run in `out` first.
        observer: is told about the start, every step and every epoch; None shows the progress and the time left on
            standard error, and `elfnet.train.Silent()` shows nothing.
        stop_after: called after every epoch of a network with the number of its epochs. True in any process stops the
            run.
        launch: how many processes train together. Each of several processes runs the caller's whole script.
        network: trained in place instead of the recipe's own network (see `attach_exits`). The model section of the
            recipe is then not used, and every later call that runs the network needs `network` too.

    Example:
        >>> from elfnet import load_recipe, train_recipe
        >>> data = {"data.largest": 24, "data.calibration_per_class": 6, "data.test_per_class": 6}
        >>> settings = {**data, "model.backbone": "resnet8", "train.epochs": 1}
        >>> recipe = load_recipe("digits/elf-ce-drw", settings)
        >>> train_recipe(recipe, "runs/first").exists()
        True
    """
    run = RunDirectory(Path(out))
    launch = (launch or Launch()).resolve()
    if "train.batch_size" not in recipe.train.automatic:
        refuse_uneven_batches(recipe.train.batch_size, recipe.train.accumulate, launch)
    refuse_mixed_features(recipe.train.mix, launch)
    if restarted():
        # torchrun repeats the original command, which was given before the run existed.
        resume, overwrite = run.exists(), False
    recipe = adopt_known(recipe, run, overwrite=overwrite)
    if recipe.refit.method != "none":
        check_source(recipe, run, overwrite=overwrite, given=network)
    with ExitStack() as stack:
        if launch.world_size == 1:
            stack.enter_context(run.lock())
        if recipe.refit.method in FITTED:
            return fit_run(recipe, run, resume=resume, overwrite=overwrite, observer=observer, launch=launch)
        processes = _start_processes(recipe, run, launch, stack, resume=resume, overwrite=overwrite)
        observer = (observer or stack.enter_context(Watch())) if processes.is_rank0 else Silent()
        with report_lost_processes(launch):
            recipe = set_up_in_rank0(recipe, run, processes, observer, overwrite=overwrite, own_network=network is None)
            prepared = prepare(recipe, run, processes, overwrite=overwrite, given=network)
            if prepared.saved is None:
                for text in costly_exits(count_cost(prepared.final_network, prepared.image_shape)):
                    observer.note(f"warning: {text}")
            info = _open_or_create(prepared, run, overwrite=overwrite)

            def train_fold(fold: Prepared, directory: RunDirectory) -> bool:
                return _train_stages(
                    fold, directory, _open_or_create(fold, directory, overwrite=False), observer, stop_after
                )

            if recipe.data.cross_fitting and not train_folds(prepared, run, train_fold, observer, given=network):
                return run
            _train_stages(prepared, run, info, observer, stop_after)
    return run


def _open_or_create(prepared: Prepared, run: RunDirectory, *, overwrite: bool) -> RunInfo:
    """Open or create a run in rank 0, and return its run.json in every process."""
    stored = prepared.processes.broadcast_from_rank0(
        lambda: open_or_create_run(prepared, run, overwrite=overwrite).model_dump_json(exclude_unset=True)
    )
    return RunInfo.model_validate_json(stored)


def _start_processes(
    recipe: Recipe, run: RunDirectory, launch: Launch, stack: ExitStack, *, resume: bool, overwrite: bool
) -> DistributedContext:
    """Start the processes of a run, and check its directory under the lock of the run.

    With one process the caller holds the lock. With several, rank 0 takes it here, and `stack` releases it.
    """
    if launch.world_size == 1:
        check_directory(run, recipe, resume=resume, overwrite=overwrite)
    recorded = run.info().machine if run.exists() and not overwrite else None
    device, precision = device_and_precision(recipe.train, recorded)
    processes = DistributedContext(start(launch, device=device, precision=fabric_precision(precision)))
    if launch.world_size > 1:
        processes.broadcast_from_rank0(lambda: stack.enter_context(run.lock()))
        processes.broadcast_from_rank0(lambda: check_directory(run, recipe, resume=resume, overwrite=overwrite))
    return processes


def open_or_create_run(prepared: Prepared, run: RunDirectory, *, overwrite: bool) -> RunInfo:
    """Return run.json of the existing run after checking it, or write that of a new run."""
    if run.exists() and not overwrite:
        info = run.info()
        info.require_same_data(prepared.splits.fingerprint, where=run.root, way_out=OTHER_RUN)
        if info.network is not None or prepared.origin.network is not None:
            require_same_network(run, info, prepared.origin.network)
        return info
    cost = count_cost(prepared.final_network, prepared.image_shape)
    info = run_info(prepared.recipe, prepared.splits, prepared.normalisation, cost)
    per_node, world_size = prepared.processes.on_this_node, prepared.processes.world_size
    started = {"devices": per_node, "nodes": world_size // per_node, **prepared.origin.sections()}
    info = info.model_copy(update=started)
    # All checks have passed; only now is an old run removed.
    if run.exists():
        run.remove()
    run.create(prepared.recipe, info)
    return info


def _train_stages(
    prepared: Prepared,
    run: RunDirectory,
    info: RunInfo,
    observer: Observer,
    stop_after: Callable[[int], bool] | None,
) -> bool:
    """Train all stages that are not finished, each from the weights of the one before; returns whether it stopped."""
    recipe, network, stage, saved = prepared.recipe, prepared.network, prepared.stage, prepared.saved
    set_up_machine(recipe, info, prepared.processes)
    state = restore(prepared, run, info)
    observer.started(recipe, info, state.epochs_done)
    stopped = False
    if saved is not None and is_finished(recipe, saved):
        return stopped
    loggers = open_loggers(run, recipe, state.epochs_done) if prepared.processes.is_rank0 else []
    loop = _Loop(prepared, run, info, observer, stop_after, loggers)
    try:
        for following in stages_of(recipe):
            if state.epochs_done >= following.end:
                continue
            if following.name != stage.name:
                weights = network.state_dict() if saved is None else saved.weights
                if prepared.processes.is_rank0:
                    keep_first_stage(run, signature_of_run(stage.recipe.model, info), state.epochs_done, weights)
                stage, saved, state = following, None, second_stage_state(state)
                network = second_stage_network(
                    stage, weights, classes=prepared.classes, image_channels=prepared.image_shape[0]
                )
            network, stopped = loop.train_stage(stage, network, state, saved)
            if stopped:
                break
            saved = None
    finally:
        for logger in loggers:
            logger.close()
    return stopped


@dataclass(frozen=True)
class _Loop:
    """The epochs of a run, with what all of its stages share."""

    prepared: Prepared
    directory: RunDirectory
    info: RunInfo
    observer: Observer
    stop_after: Callable[[int], bool] | None
    loggers: list[Logger]

    def train_stage(
        self, stage: Stage, network: StagedNetwork, state: RunState, saved: Checkpoint | None
    ) -> tuple[StagedNetwork, bool]:
        """Train a stage to its end, or until the run is stopped.

        Args:
            network: of the stage, with the weights to start or resume from.
            state: progress of the run; updated in place.
            saved: the checkpoint of this stage to resume from; None: the stage starts.

        Returns:
            The network to evaluate, and whether the run was stopped.
        """
        assembled = assemble(self.prepared, stage, network, saved, self.info.machine, self.observer)
        epochs_kept, stopped = state.epochs_done, False
        try:
            while not stopped and state.epochs_done < stage.end:
                record = self._run_epoch(stage, assembled, network, state)
                epochs_kept = state.epochs_done
                self.observer.epoch(record)
                wanted = self.stop_after is not None and self.stop_after(state.epochs_done)
                stopped = self.prepared.processes.any(wanted)
                if stops_early(self.prepared.recipe, state.epochs_done, state.best_epoch):
                    self.observer.note(early_stop_note(stage, record, state.best_epoch))
                    break
        except WorkError as error:
            kept = (
                f"the checkpoint after {epochs_kept} epochs is intact" if epochs_kept else "there is no checkpoint yet"
            )
            raise type(error)(f"{error} ({kept}: {self.directory.root})") from error
        finally:
            assembled.batches.close()
        return assembled.evaluated(network), stopped

    def _run_epoch(self, stage: Stage, assembled: Assembled, network: StagedNetwork, state: RunState) -> EpochRecord:
        """Train, evaluate, log and save one epoch; returns its log record."""
        recipe, processes, evaluated = stage.recipe, self.prepared.processes, assembled.evaluated(network)
        began = time.perf_counter()
        record = assembled.trainer.run_epoch(state.epochs_done)
        processes.average_statistics(network, evaluated)
        score = None
        is_due = (state.epochs_done + 1) % recipe.train.evaluate_every == 0 or state.epochs_done + 1 == stage.end
        if is_due and len(scored_split(self.prepared)):
            score = self._score(evaluated, assembled)
        seconds = time.perf_counter() - began
        known: dict[str, object] = {"seconds": round(seconds, 3)}
        if not len(self.prepared.splits.calibration):
            # Of the test split, for the log only: nothing is chosen by it, and no checkpoint is kept.
            known["test_accuracy"], score = score, None
        known["calibration_balanced_accuracy"] = score
        if self.prepared.recipe.refit.method == "balanced":
            known["stage"] = stage.name
        if recipe.data.unreadable == "skip":
            # A lower bound: the largest number of different unreadable images that one process has met so far.
            known["unreadable"] = max(processes.all_gather(assembled.batches.skipped()))
        record = record.model_copy(update=known)
        for logger in self.loggers:
            logger.log(record)
        state.epochs_done += 1
        state.seconds += seconds
        state.distil_temperature = record.distil_temperature
        better = note_score(state, score)
        if processes.is_rank0:
            signature = signature_of_run(recipe.model, self.info)
            final = self.prepared.recipe.train.keep if self._is_last(state) else None
            keep(self.directory, signature, network, assembled, state, better=better, final=final)
        return record

    def _is_last(self, state: RunState) -> bool:
        whole = self.prepared.recipe
        ended = state.epochs_done >= total_epochs(whole)
        return ended or stops_early(whole, state.epochs_done, state.best_epoch)

    def _score(self, network: StagedNetwork, assembled: Assembled) -> float:
        """Balanced accuracy at full depth on the split that is scored; accuracy, if its classes have equal sizes."""
        labels_N = scored_split(self.prepared).labels_N
        prediction_N = predictions(
            network,
            assembled.scored,
            len(labels_N),
            precision=self.info.machine.precision,
            processes=self.prepared.processes,
        )
        return calibration_score(prediction_N, labels_N)
