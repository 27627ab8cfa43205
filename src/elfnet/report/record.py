"""Everything the report knows about one run, read from its directory and checked for consistency."""

# Shapes: C classes

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elfnet.calibrate.family import MULTIPLY_ADDS, Family
from elfnet.checkpoint.run_directory import RunDirectory, open_run
from elfnet.data.groups import GROUP_NAMES, FrequencyGroups
from elfnet.errors import RequestError, WorkError
from elfnet.evaluate.accuracy import Metrics
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.replay import Replay, replay
from elfnet.recipe.schema import Recipe
from elfnet.report.run_files import EpochRecord, StoredResults, read_epochs, read_results


@dataclass(frozen=True, eq=False, kw_only=True)
class RunRecord:
    """One finished run.

    Attributes:
        directory: where it was read from.
        name: what the page calls it; the directory's name.
        info: run.json.
        epochs: log.jsonl.
        family: the operating points, fitted on the calibration split.
        results: what they gave on the test split.
        table: the test split's exit table; None where the file is gone, and with it all that needs single examples.
        class_names, class_counts_C: of the training split.
    """

    directory: RunDirectory
    name: str
    recipe: Recipe
    info: dict[str, Any]
    epochs: tuple[EpochRecord, ...]
    family: Family
    results: StoredResults
    table: ExitTable | None
    class_names: tuple[str, ...]
    class_counts_C: NDArray[np.int64]
    _replays: dict[str, Replay] = field(default_factory=dict, init=False, repr=False)

    @property
    def exits(self) -> int:
        return self.family.points[0].policy.exits

    @property
    def plain(self) -> bool:
        """Whether this is a network without early exits: one point instead of a curve."""
        return self.exits == 1

    @property
    def method(self) -> str:
        return method_name(self.recipe)

    @property
    def network(self) -> str:
        """What the network is called; the recipe does not know one that was handed in."""
        return "given network" if "network" in self.info else self.recipe.model.backbone

    @property
    def groups(self) -> FrequencyGroups:
        return FrequencyGroups(many_above=self.recipe.data.many_above, few_below=self.recipe.data.few_below)

    @property
    def group_of_class(self) -> NDArray[np.int64]:
        return self.groups.of_classes(self.class_counts_C)

    @property
    def tail_group(self) -> str | None:
        """The rarest group with test examples; None where all examples are of one group."""
        sizes = self.at("full").n_by_group
        present = [name for name in GROUP_NAMES if sizes[name]]
        return present[-1] if len(present) > 1 else None

    @property
    def measured_on(self) -> str:
        """The split and n, for captions: a sentence without its full stop."""
        return f"{self.results.split.capitalize()} split, n = {self.results.n:,}"

    def at(self, point: str) -> Metrics:
        return self.results.points[point]

    def replayed(self, point: str) -> Replay:
        """What an operating point did with every example of the table; computed once."""
        assert self.table is not None, "a replay needs the exit table"
        if point not in self._replays:
            self._replays[point] = replay(self.table, self.family.point(point).policy)
        return self._replays[point]

    @property
    def short_cost_unit(self) -> str:
        """The unit of cost without how it was measured, for axes."""
        return self.results.cost_unit.partition(" (")[0]

    @property
    def no_table(self) -> str:
        """Why there is nothing about single examples, with the way out: a sentence without its full stop."""
        root = self.directory.root
        return f"{self.name} has no exit table of the {self.results.split} split; run 'elfnet evaluate {root}' first"

    def point_label(self, name: str) -> str:
        """A point with the candidate it was chosen from: "economic (s=0.8)"."""
        same_as = self.family.point(name).same_as
        return name if same_as is None else f"{name} ({same_as})"


def read_run(run: RunDirectory | str | Path, name: str | None = None) -> RunRecord:
    """Read a run's files.

    Raises:
        RequestError: the run has not been calibrated.
        WorkError: its files are damaged or not of one checkpoint.
    """
    directory = open_run(run.root if isinstance(run, RunDirectory) else run)
    for file in (directory.policy_file, directory.metrics_file):
        if not file.is_file():
            raise RequestError(
                f"{directory.root} has no {file.name} to report on; run 'elfnet calibrate {directory.root}' first"
            )
    family = Family.open(directory.policy_file)
    results = read_results(directory.metrics_file)
    _require_one_measurement(directory, family, results)
    info = directory.info()
    class_names, class_counts_C = _classes(directory, info, results)
    return RunRecord(
        directory=directory,
        name=name or directory.root.resolve().name,
        recipe=directory.recipe(),
        info=info,
        epochs=read_epochs(directory),
        family=family,
        results=results,
        table=_table(directory, family, results),
        class_names=class_names,
        class_counts_C=class_counts_C,
    )


def read_runs(runs: Sequence[RunDirectory | str | Path]) -> tuple[RunRecord, ...]:
    """Several runs under names that tell them apart."""
    if not runs:
        raise RequestError("a report needs at least one run directory; name one, such as runs/first")
    roots = [Path(run.root if isinstance(run, RunDirectory) else run).resolve() for run in runs]
    for position, root in enumerate(roots):
        if root in roots[:position]:
            raise RequestError(f"run {runs[position]} is given twice; name each run once")
    names = [root.name for root in roots]
    if len(set(names)) < len(names):
        # Directories of one name: as much of the path as it takes to tell them apart.
        shared = Path(os.path.commonpath(roots))
        shared = shared.parent if shared in roots else shared
        names = [root.relative_to(shared).as_posix() for root in roots]
    return tuple(read_run(run, name) for run, name in zip(runs, names, strict=True))


def _require_one_measurement(directory: RunDirectory, family: Family, results: StoredResults) -> None:
    """metrics.json must have been measured at policy.json's thresholds with the same checkpoint."""
    fitted = {point.name: point.policy.thresholds for point in family.points}
    chosen = {"full", "accurate", "economic"} <= set(fitted)
    if results.checkpoint_sha256 != family.checkpoint_sha256 or results.thresholds != fitted or not chosen:
        raise WorkError(
            f"{directory.metrics_file} was not measured with the operating points of {directory.policy_file.name}; "
            f"run 'elfnet calibrate {directory.root}' again"
        )


def _classes(
    directory: RunDirectory, info: dict[str, Any], results: StoredResults
) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    try:
        names = tuple(str(name) for name in info["data"]["class_names"])
        counts_C = np.array(info["data"]["class_counts"], dtype=np.int64)
        if not len(names) == len(counts_C) == len(results.points["full"].accuracy_by_class):
            raise ValueError("the numbers of class names, counts and results differ")
    except (KeyError, TypeError, ValueError) as error:
        raise WorkError(
            f"{directory.info_file} is damaged ({error}); restore it from a copy, or train again"
        ) from error
    return names, counts_C


def _table(directory: RunDirectory, family: Family, results: StoredResults) -> ExitTable | None:
    file = directory.table(results.split)
    if not file.is_file():
        return None
    table = ExitTable.open(file)
    table.require_checkpoint(results.checkpoint_sha256)
    if family.cost_unit == MULTIPLY_ADDS:
        return table
    # The table counts multiply-adds; the points were fitted and measured in another unit.
    return replace(table, cost_E=np.array(family.cost), head_cost_E=np.array(family.head_cost))


_LOSSES = {
    "ce": "CE",
    "focal": "Focal",
    "ldam": "LDAM",
    "balanced-softmax": "BalancedSoftmax",
    "logit-adjusted": "LogitAdjusted",
}
_MIXINGS = {"mixup": "+Mixup", "manifold": "+ManifoldMixup"}
_REFITS = {
    "crt": "cRT",
    "lws": "LWS",
    "tau-norm": "tau-norm",
    "logit-adjustment": "LogitAdjustment",
    "over-sampling": "over-sampled features",
    "under-sampling": "under-sampled features",
    "smote": "SMOTE",
    "borderline-smote": "Borderline-SMOTE",
    "adasyn": "ADASYN",
    "edited-nearest-neighbours": "ENN",
    "cluster-under-sampling": "cluster centroids",
}


def method_name(recipe: Recipe) -> str:
    """The base loss, inside the exit rule if there is one, how classes are weighted, and what else is done.

    Example:
        >>> from elfnet.recipe.load import load_recipe
        >>> method_name(load_recipe("cifar10-lt/elf-ldam-drw"))
        'ELF(LDAM)+DRW'
    """
    name = _LOSSES[recipe.criterion.loss]
    if recipe.model.branches == 2:
        name = f"BBN({name})"
    elif recipe.model.exits:
        name = f"{_exits(recipe)}({name})"
    if recipe.criterion.reweight != "none":
        # Deferred re-weighting, or weights from the start.
        name += "+DRW" if recipe.train.drw_start > 0 else f"+RW({recipe.criterion.reweight})"
    name += _MIXINGS.get(recipe.train.mix, "")
    return name if recipe.refit.how == "none" else f"{_REFITS[recipe.refit.how]} on {name}"


def _exits(recipe: Recipe) -> str:
    """Which of the ways to train exits it is."""
    if recipe.exits.rule == "elf":
        return "ELF"
    if recipe.criterion.distil:
        return "Distilled"
    if recipe.exits.confidence == "entropy":
        return "BranchyNet"
    return "MSDNet" if recipe.model.backbone == "msdnet" else "Joint"


HALVES = "Head: the more frequent half of the classes; tail: the others."


def head_classes(class_counts_C: NDArray[np.int64]) -> NDArray[np.bool_]:
    """True for the more frequent half of the classes, shape (C,); the rest are tail. Ties go by label.

    The training log counts the same halves.
    """
    order_C = np.argsort(-class_counts_C, kind="stable")
    is_head_C = np.zeros(len(class_counts_C), dtype=np.bool_)
    is_head_C[order_C[: (len(class_counts_C) + 1) // 2]] = True
    return is_head_C
