"""The data section of a recipe, flattened into plain arguments."""

from pathlib import Path

from elfnet.data.build import load_source
from elfnet.data.groups import FrequencyGroups
from elfnet.data.splits import Splits, make_splits
from elfnet.recipe.schema import DataRecipe


def load_splits(data: DataRecipe) -> Splits:
    """Read the source and make the three splits."""
    source = load_source(data.source, Path(data.directory) if data.directory else None)
    return make_splits(
        source,
        profile=data.profile,
        ratio=data.ratio,
        pareto_alpha=data.pareto_alpha,
        step_tail_fraction=data.step_tail_fraction,
        counts=data.counts or None,
        largest=data.largest or None,
        calibration_per_class=data.calibration_per_class or None,
        test_per_class=data.test_per_class if source.test is None else None,
        subset_seed=data.subset_seed,
        class_order_seed=None if data.class_order_seed < 0 else data.class_order_seed,
    )


def augmentation(data: DataRecipe, splits: Splits) -> tuple[int, bool]:
    """(padding of the random crop, whether to mirror) for the training images; a padding of 0 does not crop."""
    pad = 0 if data.augment == "none" else data.pad
    return pad, data.augment == "crop-flip" and splits.horizontal_flip


def frequency_groups(data: DataRecipe) -> FrequencyGroups:
    return FrequencyGroups(many_above=data.many_above, few_below=data.few_below)
