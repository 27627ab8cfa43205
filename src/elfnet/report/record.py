"""Everything the report knows about one run, read from its directory and checked for consistency."""

# Shapes: C classes

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elfnet.calibrate.measured_cost import MeasuredCost
from elfnet.calibrate.point_family import MULTIPLY_ADDS, Family
from elfnet.data.long_tail import GROUP_NAMES, FrequencyGroups
from elfnet.errors import RequestError, WorkError
from elfnet.evaluate.exit_table import CROSS_FITTING, ExitTable
from elfnet.evaluate.policy_replay import Replay, replay
from elfnet.recipe.schema import Recipe
from elfnet.run.directory import RunDirectory, open_run
from elfnet.run.info import RunInfo
from elfnet.run.log import EpochRecord
from elfnet.run.results import Metrics, Results

CHOSEN_POINTS = ("full", "accurate", "economic")
"""The operating points that every calibrated run has: full depth, and the two chosen on the calibration split."""

MIX_TOLERANCE = 0.05
"""Difference between two class mixes, as a share of the images, that is not worth a remark."""


@dataclass(frozen=True, eq=False, kw_only=True)
class RunRecord:
    """One finished run.

    Attributes:
        directory: the run directory.
        name: what the page calls the run; the directory's name.
        info: contents of run.json.
        epochs: contents of log.jsonl, one record per epoch.
        family: the operating points, fitted on the calibration split.
        results: their metrics on the test split.
        table: exit table of the test split; None if the file is missing. Some figures need it.
        times: time of the stages on the machine that calibrated the run; None if it was not measured.
    """

    directory: RunDirectory
    name: str
    recipe: Recipe
    info: RunInfo
    epochs: tuple[EpochRecord, ...]
    family: Family
    results: Results
    table: ExitTable | None
    times: MeasuredCost | None = None
    _replays: dict[str, Replay] = field(default_factory=dict, init=False, repr=False)

    @property
    def exits(self) -> int:
        """Number of exits, the last one included."""
        return self.family.points[0].policy.exits

    @property
    def plain(self) -> bool:
        """Whether the network has no early exits."""
        return self.exits == 1

    @property
    def method(self) -> str:
        """Name of the training method."""
        return method_name(self.recipe)

    @property
    def network(self) -> str:
        """Name of the backbone; the recipe has none for a network that was passed in from Python."""
        if self.info.network is not None:
            return "given network"
        model = self.recipe.model
        return model.backbone if model.experts == 1 else f"{model.backbone} with {model.experts} experts"

    @property
    def groups(self) -> FrequencyGroups:
        """The limits between the groups many, medium and few."""
        return FrequencyGroups(many_above=self.recipe.data.many_above, few_below=self.recipe.data.few_below)

    @property
    def class_counts(self) -> NDArray[np.int64]:
        """Training images of each class, shape (C,)."""
        return np.array(self.info.data.class_counts, dtype=np.int64)

    @property
    def group_of_class(self) -> NDArray[np.int64]:
        """Index into `GROUP_NAMES` for each class, shape (C,)."""
        return self.groups.of_classes(self.class_counts)

    @property
    def tail_group(self) -> str | None:
        """The rarest group with test examples; None if all examples belong to one group."""
        sizes = self.at("full").n_by_group
        present = [name for name in GROUP_NAMES if sizes[name]]
        return present[-1] if len(present) > 1 else None

    @property
    def measured_on(self) -> str:
        """Split and number of examples for captions, without a full stop."""
        return f"{self.results.split.capitalize()} split, n = {self.results.n:,}"

    @property
    def short_cost_unit(self) -> str:
        """The unit of cost for axis labels, without how it was measured."""
        return self.results.cost_unit.partition(" (")[0]

    @property
    def cost_note(self) -> str:
        """A sentence that explains the unit of cost."""
        return f"Cost: {self.results.cost_unit}; 1 is the backbone without exits, and heads are included."

    @property
    def no_table(self) -> str:
        """The reason why a figure needs the exit table and the way out, without a full stop."""
        root = self.directory.root
        return f"{self.name} has no exit table of the {self.results.split} split; run 'elfnet evaluate {root}' first"

    def at(self, point: str) -> Metrics:
        """Return the metrics of an operating point on the test split."""
        return self.results.points[point]

    def milliseconds(self, point: str) -> float | None:
        """Return the mean time per image of the test split at an operating point; None if times were not measured."""
        if self.times is None:
            return None
        return self.times.milliseconds(self.family.point(point).policy, self.at(point).exit_share)

    def all_milliseconds(self) -> dict[str, float] | None:
        """Return the mean time per image of every operating point; None if times were not measured."""
        taken = {point.name: self.milliseconds(point.name) for point in self.family.points}
        return {name: value for name, value in taken.items() if value is not None} or None

    @property
    def time_note(self) -> str:
        """A sentence that explains the times; empty if there are none."""
        if self.times is None:
            return ""
        return f"Times: mean milliseconds per image on the machine that calibrated the run ({self.times.how})."

    @property
    def mix_note(self) -> str:
        """A sentence if the classes of the test split have other shares than the points were chosen for, else empty."""
        table, file = self.table, self.directory.table(self.family.split, self.family.checkpoint)
        if table is None or not (self.family.class_mix or file.is_file()):
            return ""
        labels_N = table.labels_N if self.family.class_mix else ExitTable.open(file).labels_N
        chosen_C = np.array(self.family.class_mix or np.bincount(labels_N, minlength=table.classes))
        found_C = np.bincount(table.labels_N, minlength=table.classes)
        difference = float(np.abs(chosen_C / chosen_C.sum() - found_C / found_C.sum()).sum()) / 2
        if difference <= MIX_TOLERANCE:
            return ""
        return (
            f"The {table.split} split has another class mix than the points were chosen for: {100 * difference:.0f} % "
            "of its images would have to be of other classes; compare the balanced accuracies."
        )

    def leading_points(self) -> dict[str, str]:
        """Return the points that a user would choose, with what each stands for.

        They are full depth, `accurate` if it is the default point, half the cost, and the cheapest within one point of
        full depth, as far as the family has them. A family without thresholds per exit has `economic` as its cheapest
        point within the tolerance.
        """
        names, leading = self.family.names(), {"full": "full depth"}
        by = "by cross-fitting" if self.family.split == CROSS_FITTING else "by the calibration split"
        if self.plain:
            return leading
        if self.family.default.name == "accurate":
            leading["accurate"] = f"used where no point is named: more accurate than full depth, {by}"
        if "budget=0.5" in names:
            leading["budget=0.5"] = "half the cost"
        if "within-1" in names:
            leading["within-1"] = f"cheapest within one point of full depth, {by}"
        else:
            leading["economic"] = f"cheapest within the tolerance of accuracy, {by}"
        return leading

    def replayed(self, point: str) -> Replay:
        """Return exit and prediction of every example at an operating point; needs the exit table, cached."""
        assert self.table is not None, "a replay needs the exit table"
        if point not in self._replays:
            self._replays[point] = replay(self.table, self.family.point(point).policy)
        return self._replays[point]

    def point_label(self, name: str) -> str:
        """Return the name of a point with the candidate it was chosen from: "economic (s=0.8)"."""
        same_as = self.family.point(name).same_as
        return name if same_as is None else f"{name} ({same_as})"


def read_run(run: RunDirectory | str | Path, name: str | None = None) -> RunRecord:
    """Read the files of one calibrated run.

    Args:
        run: the run directory.
        name: what the page calls the run; the directory's name by default.

    Raises:
        RequestError: the run has not been calibrated.
        WorkError: files are damaged, or belong to different checkpoints.
    """
    directory = open_run(run.root if isinstance(run, RunDirectory) else run)
    for file in (directory.policy_file, directory.metrics_file):
        if not file.is_file():
            raise RequestError(
                f"{directory.root} has no {file.name} to report on; run 'elfnet calibrate {directory.root}' first"
            )
    family = Family.open(directory.policy_file)
    results, info = directory.results(), directory.info()
    _require_one_measurement(directory, family, results)
    _require_same_classes(directory, info, results)
    return RunRecord(
        directory=directory,
        name=name or directory.root.resolve().name,
        recipe=directory.recipe(),
        info=info,
        epochs=directory.log(),
        family=family,
        results=results,
        table=_open_table(directory, family, results),
        times=MeasuredCost.open(directory.times_file) if directory.times_file.is_file() else None,
    )


def read_runs(runs: Sequence[RunDirectory | str | Path]) -> tuple[RunRecord, ...]:
    """Read several runs and give each a unique name.

    Raises:
        RequestError: no run, the same run twice, or a run that has not been calibrated.
        WorkError: files are damaged, or belong to different checkpoints.
    """
    if not runs:
        raise RequestError("a report needs at least one run directory; name one, such as runs/first")
    roots = [Path(run.root if isinstance(run, RunDirectory) else run).resolve() for run in runs]
    for position, root in enumerate(roots):
        if root in roots[:position]:
            raise RequestError(f"run {runs[position]} is given twice; name each run once")
    names = [root.name for root in roots]
    if len(set(names)) < len(names):
        # Several directories have the same name: add as much of their paths as makes them differ.
        shared = Path(os.path.commonpath(roots))
        shared = shared.parent if shared in roots else shared
        names = [root.relative_to(shared).as_posix() for root in roots]
    return tuple(read_run(run, name) for run, name in zip(runs, names, strict=True))


def _require_one_measurement(directory: RunDirectory, family: Family, results: Results) -> None:
    """Refuse a metrics.json that was not measured at the thresholds of policy.json with the same checkpoint."""
    fitted = {point.name: point.policy.thresholds for point in family.points}
    measured = {name: point.thresholds for name, point in results.points.items()}
    complete = set(CHOSEN_POINTS) <= set(fitted)
    if results.checkpoint_sha256 != family.checkpoint_sha256 or measured != fitted or not complete:
        raise WorkError(
            f"{directory.metrics_file} was not measured with the operating points of {directory.policy_file.name}; "
            f"run 'elfnet calibrate {directory.root}' again"
        )


def _require_same_classes(directory: RunDirectory, info: RunInfo, results: Results) -> None:
    stated, measured = info.data.classes, len(results.points["full"].accuracy_by_class)
    if stated != measured:
        raise WorkError(
            f"{directory.info_file} is damaged ({stated} class names, but {directory.metrics_file.name} has {measured} "
            "classes); restore it from a copy, or train again"
        )


def _open_table(directory: RunDirectory, family: Family, results: Results) -> ExitTable | None:
    file = directory.table(results.split, family.checkpoint)
    if not file.is_file():
        return None
    table = ExitTable.open(file)
    table.require_checkpoint(results.checkpoint_sha256)
    table = replace(table, adjustment=family.adjustment)
    if family.cost_unit == MULTIPLY_ADDS:
        return table
    # The table counts multiply-adds; the points were fitted and measured in another unit.
    return replace(table, cost_E=np.array(family.cost), head_cost_E=np.array(family.head_cost))


_LOSSES = {
    "ce": "CE",
    "focal": "Focal",
    "focal-reference": "FocalReference",
    "ldam": "LDAM",
    "balanced-softmax": "BalancedSoftmax",
    "logit-adjusted": "LogitAdjusted",
}
_MIXINGS = {"mixup": "+Mixup", "manifold": "+ManifoldMixup", "cutmix": "+CutMix", "cmo": "+CMO"}
_REFITS = {
    "balanced": "balanced classifiers",
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


_POLICIES = {
    "autoaugment": "+AutoAugment",
    "randaugment": "+RandAugment",
    "trivialaugment": "+TrivialAugment",
}


def method_name(recipe: Recipe) -> str:
    """Return the name that tables of the literature give to the method of a recipe.

    It states the base loss, the exit rule around it, the class weighting, the augmentation policy, mixing, experts, and
    a refitted classifier.

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
        # Deferred re-weighting, or weights from the first epoch on.
        name += "+DRW" if recipe.train.drw_start > 0 else f"+RW({recipe.criterion.reweight})"
    name += _POLICIES.get(recipe.data.policy, "") + _MIXINGS.get(recipe.train.mix, "")
    if recipe.model.experts > 1:
        name += f", {recipe.model.experts} experts"
    refit = _REFITS.get(recipe.refit.method, "")
    if recipe.refit.method in ("crt", "lws") and recipe.refit.batch_norm == "frozen":
        refit += " (fast)"
    return f"{refit} on {name}" if refit else name


def _exits(recipe: Recipe) -> str:
    """Return the name of the way the exits are trained."""
    if recipe.exits.rule == "elf":
        return "ELF"
    if recipe.criterion.distil:
        return "Distilled"
    if recipe.exits.confidence == "entropy":
        return "BranchyNet"
    return "MSDNet" if recipe.model.backbone == "msdnet" else "Joint"


HALVES = "Head: the more frequent half of the classes; tail: the others."
