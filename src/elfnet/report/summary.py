"""A run in words, and differences with confidence intervals: one point or run against another."""

from dataclasses import dataclass

from elfnet.calibrate.point_family import MULTIPLY_ADDS
from elfnet.data.long_tail import GROUP_NAMES
from elfnet.errors import RequestError
from elfnet.evaluate.bootstrap import Comparison, Difference, paired_bootstrap
from elfnet.evaluate.exit_table import CROSS_FITTING, ExitTable
from elfnet.evaluate.policy_replay import Replay
from elfnet.recipe.stages import total_epochs
from elfnet.report import formatting as fmt
from elfnet.report.record import RunRecord

SEED = 0
MAX_CLASSES_FOR_ALL_RESAMPLES = 500
"""With more classes than this, the bootstrap uses fewer resamples: its time grows with the number of classes."""


@dataclass(frozen=True)
class PointEffect:
    """Accuracy of one group of classes at an operating point, compared with full depth.

    Attributes:
        group: name of the group.
        full, early: accuracy at full depth and at the operating point.
        difference: with its confidence interval; None without the exit table.
    """

    group: str
    full: float
    early: float
    difference: Difference | None

    @property
    def verdict(self) -> str:
        """The change in words; without an interval, nothing is stated about its significance."""
        change = self.early - self.full
        if self.difference is None:
            if change == 0:
                return "unchanged"
            return "lower, with unknown significance because the exit table is missing" if change < 0 else "higher"
        if self.difference.high < 0:
            return "significantly lower"
        if self.difference.low > 0:
            return "significantly higher"
        if self.difference.low == self.difference.high == 0:
            return "unchanged"
        return "no significant change"


def tail_effect(record: RunRecord, point: str) -> PointEffect | None:
    """Compare the rarest group at an operating point with full depth; None if there is only one group."""
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
    """Return the differences in accuracy, second minus first, if all examples take the last exit.

    Raises:
        RequestError: the two runs cannot be shown to have the same test examples.
    """
    if first.table is None or second.table is None:
        without = first if first.table is None else second
        raise RequestError(f"{without.name} has no exit table of the {without.results.split} split")
    if not _same_test_examples(first, second):
        raise RequestError("the test examples may differ (another data set, or another held-out split)")
    return _bootstrap((first.table, first.replayed("full")), (second.table, second.replayed("full")))


def _same_test_examples(first: RunRecord, second: RunRecord) -> bool:
    """Return whether two runs have the same test images.

    They do if the fingerprints are equal. Otherwise, a test split that comes with the data set is the same for every
    run, and one that was held out is the same if seed and sizes are equal, whatever the long-tail profile.
    """
    if first.info.data.fingerprint == second.info.data.fingerprint:
        return True
    recipes = [record.recipe.data for record in (first, second)]
    if recipes[0].source != recipes[1].source:
        return False
    held_out = [
        record.results.n == recipe.test_per_class * record.info.data.classes
        for record, recipe in zip((first, second), recipes, strict=True)
    ]
    settings = [(recipe.subset_seed, recipe.calibration_per_class, recipe.test_per_class) for recipe in recipes]
    return settings[0] == settings[1] if any(held_out) else True


def _bootstrap(first: tuple[ExitTable, Replay], second: tuple[ExitTable, Replay]) -> Comparison:
    resamples = 10_000 if first[0].classes <= MAX_CLASSES_FOR_ALL_RESAMPLES else 1_000
    return paired_bootstrap(first, second, resamples=resamples, seed=SEED)


def summary(record: RunRecord) -> dict[str, str]:
    """Return paragraphs of text by topic: data, network, accuracy and cost, rare classes, increasing loss."""
    paragraphs = {"Data": _data(record), "Network": _network(record), "Accuracy and cost": _accuracy(record)}
    if not record.plain:
        paragraphs |= {"Rare classes": _tail(record), "Increasing loss": increasing_loss_verdict(record)}
    return {topic: text for topic, text in paragraphs.items() if text}


def _data(record: RunRecord) -> str:
    data, recipe, counts_C = record.info.data, record.recipe, record.class_counts
    sizes = record.groups.sizes(counts_C)
    groups = ", ".join(f"{size} {name}" for name, size in zip(GROUP_NAMES, sizes, strict=True))
    ratio = "" if recipe.data.profile in ("none", "counts") else f", imbalance ratio {recipe.data.ratio:g}"
    return (
        f"{recipe.data.source}{ratio}: {len(counts_C)} classes with {counts_C.max():,} down to {counts_C.min():,} "
        f"training images ({groups}; {record.groups.rule}). {data.train:,} images for training, "
        f"{data.calibration:,} for calibration, {data.test:,} for test."
        + (f" Thresholds were chosen on the {record.family.chosen_on}." if not data.calibration else "")
    )


def _network(record: RunRecord) -> str:
    together = "and" if record.recipe.model.experts > 1 else "with"  # the network's name ends with its experts
    exits = "without early exits" if record.plain else f"{together} {record.exits} exits"
    done, planned = len(record.epochs), total_epochs(record.recipe)
    length = f"{planned} epochs" if done in (0, planned) else f"{done} of {planned} epochs"
    return f"{record.network} {exits}, trained with {record.method} for {length}."


def _accuracy(record: RunRecord) -> str:
    full = record.at("full")
    plain_cost = fmt.multiply_adds(record.results.plain_multiply_adds)
    start = (
        f"At full depth it classifies {fmt.percent(full.accuracy)} % of the {full.n:,} {record.results.split} images "
        f"correctly"
    )
    if record.plain:
        return f"{start}, at a cost of {fmt.cost(full.mean_cost)}: {plain_cost} multiply-adds per image."
    heads = ", the heads of all exits included" if full.mean_cost > 1 else ""
    what = f"times the plain backbone's {plain_cost} multiply-adds"
    if record.results.cost_unit != MULTIPLY_ADDS:
        what = f"in {record.results.cost_unit}"
    sentences = [f"{start} and costs {fmt.cost(full.mean_cost)} {what}{heads}."]
    for chosen, names in _chosen(record).items():
        if chosen == "full":
            examples = "by cross-fitting" if record.family.split == CROSS_FITTING else "on the calibration split"
            reasons = {"accurate": "more accurate", "economic": "cheaper (within the tolerance of accuracy)"}
            what = " or ".join(reasons[name] for name in reversed(names))
            sentences.append(f"No threshold was {what} than full depth {examples}.")
            continue
        point, subject = record.at(chosen), f"The {' and the '.join(names)} point"
        source = "thresholds per exit" if chosen in names else chosen
        sentences.append(
            f"{subject} ({source}): {fmt.percent(point.accuracy)} % correct at a mean cost of "
            f"{fmt.cost(point.mean_cost)}, {_versus(point.mean_cost, full.mean_cost)}; at most "
            f"{fmt.cost(point.worst_cost)}."
        )
    return " ".join(sentences)


def _versus(cost: float, full: float) -> str:
    """Compare a cost with full depth, and with the plain backbone where that has another cost."""
    if fmt.cost(full) == fmt.cost(1.0):
        return fmt.versus(cost, "full depth")
    return f"{fmt.versus(cost, 'the plain backbone')} and {fmt.versus(cost / full, 'full depth')}"


def _chosen(record: RunRecord) -> dict[str, list[str]]:
    """Return the chosen candidates with the names they were chosen for: often one candidate has both names."""
    chosen: dict[str, list[str]] = {}
    for name in ("economic", "accurate"):
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
        return "All test images belong to one frequency group, so rare classes cannot be compared with others."
    group = next(iter(known.values())).group
    n = record.at("full").n_by_group[group]
    changes = "; ".join(f"at the {names} point {_effect(effect)}" for names, effect in known.items())
    return f"The rarest group with test images is “{group}” (n = {n:,}). Compared with full depth, {changes}."


def _effect(effect: PointEffect) -> str:
    text = (
        f"{fmt.percent(effect.full)} → {fmt.percent(effect.early)} %, {fmt.signed_points(effect.early - effect.full)} "
        f"points"
    )
    if effect.difference is not None:
        text += (
            f" (95 % interval {fmt.signed_points(effect.difference.low)} to "
            f"{fmt.signed_points(effect.difference.high)})"
        )
    return f"{text}: {effect.verdict}"


def increasing_loss_verdict(record: RunRecord) -> str:
    """State whether the paper's increasing-loss property holds in the last epoch; empty without a log."""
    if not record.epochs:
        return ""
    last = record.epochs[-1]
    where = "In the last epoch, the mean loss of training examples"
    if last.increasing_loss == "holds":
        return f"{where} is larger the later their exit."
    if last.increasing_loss != "undefined":
        return f"{where} is not larger at every later exit."
    empty = [str(k) for k, loss in enumerate(last.loss_by_exit, start=1) if loss is None]
    exits = f"exit {empty[0]}" if len(empty) == 1 else f"exits {', '.join(empty[:-1])} and {empty[-1]}" if empty else ""
    why = f"no example took {exits}" if empty else "there is only one exit"
    joint = "; in joint training every example visits every exit" if record.recipe.exits.rule == "all" else ""
    return f"{where} cannot be compared between exits: {why}{joint}."
