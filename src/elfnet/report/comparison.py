"""Differences with their uncertainty: an operating point against full depth, and one run against another."""

from dataclasses import dataclass

from elfnet.errors import RequestError
from elfnet.evaluate.bootstrap import Comparison, Difference, paired_bootstrap
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.replay import Replay
from elfnet.report.run_record import RunRecord

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
    data = [record.info["data"] for record in (first, second)]
    if data[0].get("fingerprint") == data[1].get("fingerprint"):
        return True
    recipes = [record.recipe.data for record in (first, second)]
    if recipes[0].source != recipes[1].source:
        return False
    cut = [
        record.results.n == recipe.test_per_class * len(record.class_names)
        for record, recipe in zip((first, second), recipes, strict=True)
    ]
    held_out = [(recipe.subset_seed, recipe.calibration_per_class, recipe.test_per_class) for recipe in recipes]
    return held_out[0] == held_out[1] if any(cut) else True


def _bootstrap(first: tuple[ExitTable, Replay], second: tuple[ExitTable, Replay]) -> Comparison:
    # A resample costs time in proportion to the classes; thousands of them do with fewer.
    resamples = 10_000 if first[0].classes <= MOST_CLASSES_IN_FULL else 1_000
    return paired_bootstrap(first, second, resamples=resamples, seed=SEED)
