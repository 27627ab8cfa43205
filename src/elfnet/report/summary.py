"""A run in words, and differences with confidence intervals: one point or run against another."""

from dataclasses import dataclass

from elfnet.calibrate.family import MULTIPLY_ADDS
from elfnet.data.groups import GROUP_NAMES
from elfnet.errors import RequestError
from elfnet.evaluate.bootstrap import Comparison, Difference, paired_bootstrap
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.replay import Replay
from elfnet.report import formatting as say
from elfnet.report.record import RunRecord

SEED = 0
MOST_CLASSES_IN_FULL = 500


@dataclass(frozen=True)
class PointEffect:
    """What leaving early does to one group of classes.

    Attributes:
        group: the tail group.
        full, early: accuracy at full depth and at the operating point.
        difference: with its interval; None where the exit table is gone.
    """

    group: str
    full: float
    early: float
    difference: Difference | None

    @property
    def verdict(self) -> str:
        """In words; without an interval nothing is said about chance."""
        change = self.early - self.full
        if self.difference is None:
            if change == 0:
                return "unchanged"
            return (
                "lower, by an amount that cannot be told from chance without the exit table" if change < 0 else "higher"
            )
        if self.difference.high < 0:
            return "the tail suffers"
        if self.difference.low > 0:
            return "the tail gains"
        if self.difference.low == self.difference.high == 0:
            return "the tail does not change"
        return "no change that could be told from chance on this many images"


def tail_effect(record: RunRecord, point: str) -> PointEffect | None:
    """The rarest group at an operating point against full depth; None where there are no two groups to tell apart."""
    group = record.tail_group
    if group is None:
        return None
    full, early = record.at("full").accuracy_by_group[group], record.at(point).accuracy_by_group[group]
    if full is None or early is None:
        return None
    difference = None
    if record.table is not None:
        comparison = _bootstrap((record.table, record.replayed("full")), (record.table, record.replayed(point)))
        difference = comparison.differences[group]
    return PointEffect(group, full, early, difference)


def compare_at_full_depth(first: RunRecord, second: RunRecord) -> Comparison:
    """Second minus first, everybody leaving at the last exit.

    Raises:
        RequestError: the two were not measured on the same test examples, in words for the page.
    """
    if first.table is None or second.table is None:
        without = first if first.table is None else second
        raise RequestError(f"{without.name} has no exit table of the {without.results.split} split")
    if not _same_test_examples(first, second):
        raise RequestError("the test examples are not known to be the same (another data set, or held out differently)")
    return _bootstrap((first.table, first.replayed("full")), (second.table, second.replayed("full")))


def _same_test_examples(first: RunRecord, second: RunRecord) -> bool:
    """Whether equal labels mean equal images.

    Equal fingerprints settle it. Otherwise a test split that comes with the data set is the same for every run on it,
    and one that was cut from it is the same where it was cut with the same seed and sizes, whatever the profile.
    """
    if first.info.fingerprint == second.info.fingerprint:
        return True
    recipes = [record.recipe.data for record in (first, second)]
    if recipes[0].source != recipes[1].source:
        return False
    cut = [
        record.results.n == recipe.test_per_class * len(record.info.class_names)
        for record, recipe in zip((first, second), recipes, strict=True)
    ]
    held_out = [(recipe.subset_seed, recipe.calibration_per_class, recipe.test_per_class) for recipe in recipes]
    return held_out[0] == held_out[1] if any(cut) else True


def _bootstrap(first: tuple[ExitTable, Replay], second: tuple[ExitTable, Replay]) -> Comparison:
    # A resample costs time in proportion to the classes; thousands of them do with fewer.
    resamples = 10_000 if first[0].classes <= MOST_CLASSES_IN_FULL else 1_000
    return paired_bootstrap(first, second, resamples=resamples, seed=SEED)


CHOSEN = ("economic", "accurate")


def summary(record: RunRecord) -> dict[str, str]:
    """Paragraphs of plain text, by what they are about."""
    paragraphs = {"Data": _data(record), "Network": _network(record), "Accuracy and cost": _accuracy(record)}
    if not record.plain:
        paragraphs |= {"Rare classes": _tail(record), "Increasing loss": increasing_loss_verdict(record)}
    return {about: text for about, text in paragraphs.items() if text}


def _data(record: RunRecord) -> str:
    info, recipe = record.info, record.recipe
    counts_C = record.info.class_counts_C
    sizes = record.groups.sizes(counts_C)
    groups = ", ".join(f"{size} {name}" for name, size in zip(GROUP_NAMES, sizes, strict=True))
    ratio = "" if recipe.data.profile in ("none", "counts") else f", imbalance ratio {recipe.data.ratio:g}"
    return (
        f"{recipe.data.source}{ratio}: {len(counts_C)} classes with {counts_C.max():,} down to {counts_C.min():,} "
        f"training images ({groups}; {record.groups.rule}). {info.train:,} images for training, "
        f"{info.calibration:,} for calibration, {info.test:,} for test."
    )


def _network(record: RunRecord) -> str:
    recipe = record.recipe
    network = (
        f"{recipe.model.backbone} without early exits"
        if record.plain
        else f"{recipe.model.backbone} with {record.exits} exits"
    )
    done, asked = len(record.epochs), recipe.train.epochs
    length = f"{asked} epochs" if done in (0, asked) else f"{done} of {asked} epochs"
    return f"{network}, trained with {record.method} for {length}."


def _accuracy(record: RunRecord) -> str:
    full = record.at("full")
    plain_cost = say.multiply_adds(record.results.plain_multiply_adds)
    start = (
        f"At full depth it is right on {say.percent(full.accuracy)} % of the {full.n:,} {record.results.split} images"
    )
    if record.plain:
        return f"{start}, at a cost of {say.cost(full.mean_cost)}: {plain_cost} multiply-adds an image."
    heads = ": the heads of all exits count too" if full.mean_cost > 1 else ""
    what = f"times the plain backbone's {plain_cost} multiply-adds"
    if record.results.cost_unit != MULTIPLY_ADDS:
        what = f"in {record.results.cost_unit}"
    sentences = [f"{start} and costs {say.cost(full.mean_cost)} {what}{heads}."]
    for chosen, names in _chosen(record).items():
        point = record.at(chosen)
        who = f"The {names[0]} point" if len(names) == 1 else f"The {' and the '.join(names)} point alike"
        if chosen == "full":
            sentences.append(f"{who} is full depth: on the calibration split no threshold was better.")
            continue
        sentences.append(
            f"{who} ({chosen}) is right on {say.percent(point.accuracy)} % and "
            f"costs {say.cost(point.mean_cost)} on average, {_versus(point.mean_cost, full.mean_cost)}; "
            f"{say.cost(point.worst_cost)} at worst."
        )
    return " ".join(sentences)


def _versus(cost: float, full: float) -> str:
    """Full depth runs no early head, so that it mostly costs what the plain backbone does."""
    if say.cost(full) == say.cost(1.0):
        return say.versus(cost, "full depth")
    return f"{say.versus(cost, 'the plain backbone')} and {say.versus(cost / full, 'full depth')}"


def _chosen(record: RunRecord) -> dict[str, list[str]]:
    """The candidates that were chosen, each with what for: often one is both."""
    chosen: dict[str, list[str]] = {}
    for name in CHOSEN:
        chosen.setdefault(record.family.point(name).same_as or name, []).append(name)
    return chosen


def _tail(record: RunRecord) -> str:
    effects = {
        " and the ".join(names): tail_effect(record, chosen)
        for chosen, names in _chosen(record).items()
        if chosen != "full"
    }
    known = {names: effect for names, effect in effects.items() if effect is not None}
    if not effects:
        return ""
    if not known:
        return "All test images are of one frequency group, so there is no tail to compare with."
    group = next(iter(known.values())).group
    n = record.at("full").n_by_group[group]
    sentences = [f"at the {names} point {_effect(effect)}" for names, effect in known.items()]
    return (
        f"The rarest group with test images is “{group}” (n = {n:,}). Against full depth, " + "; ".join(sentences) + "."
    )


def _effect(effect: PointEffect) -> str:
    text = (
        f"{say.percent(effect.full)} → {say.percent(effect.early)} %, {say.signed_points(effect.early - effect.full)} "
        f"points"
    )
    if effect.difference is not None:
        text += (
            f" (95 % interval {say.signed_points(effect.difference.low)} to "
            f"{say.signed_points(effect.difference.high)})"
        )
    return f"{text}: {effect.verdict}"


def increasing_loss_verdict(record: RunRecord) -> str:
    """The paper's increasing-loss property in the last epoch of training."""
    if not record.epochs:
        return ""
    last = record.epochs[-1]
    start = "Training examples that leave later have the larger average loss: in the last epoch this"
    if last.increasing_loss == "holds":
        return f"{start} holds."
    if last.increasing_loss != "undefined":
        return f"{start} does not hold."
    empty = [str(k) for k, loss in enumerate(last.loss_by_exit, start=1) if loss is None]
    exits = f"exit {empty[0]}" if len(empty) == 1 else f"exits {', '.join(empty[:-1])} and {empty[-1]}" if empty else ""
    why = f"nobody left at {exits}" if empty else "there is one exit only"
    joint = ", as in joint training every example visits every exit" if record.recipe.exits.rule == "all" else ""
    return f"{start} is undefined, because {why}{joint}."
