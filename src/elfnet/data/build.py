"""Load a data set and make its splits from the data section of a recipe."""

from collections.abc import Sequence
from pathlib import Path

from elfnet.data.folds import hold_out_fold
from elfnet.data.images.files import EncodedImages
from elfnet.data.ldam_drw_protocol import PROTOCOL, ldam_drw_splits
from elfnet.data.long_tail import FrequencyGroups
from elfnet.data.sources import arrays, cifar, digits, folder, hub, lists
from elfnet.data.sources.arrays import FeatureRows
from elfnet.data.splits import Splits, make_splits
from elfnet.data.types import SOURCES, Examples, Source, SourceRequest
from elfnet.errors import RequestError
from elfnet.recipe.schema import DataRecipe

__all__ = ["SOURCES", "arrays", "cifar", "digits", "folder", "hub", "lists", "load_source"]


def load_source(name: str, directory: Path | None = None, *, request: SourceRequest | None = None) -> Source:
    """Read a data set by name, before any split is made.

    Args:
        name: Name of a registered source, such as `cifar10`.
        directory: Searched first for the files of a published data set.
        request: All settings of the source; replaces `directory`.

    Example:
        >>> load_source("digits").class_names[:3]
        ('0', '1', '2')
    """
    return SOURCES[name](request or SourceRequest(directory=directory))


_SPLITS = ("train", "calibration", "test")
UNUSED_SETTINGS = {
    "digits": ("root", "hub", *_SPLITS),
    "cifar10": ("hub", *_SPLITS),
    "cifar100": ("hub", *_SPLITS),
    "features": ("root", "hub"),
    "arrays": ("root", "hub"),
    "folder": ("hub",),
    "lists": ("hub",),
    "hub": ("root", *_SPLITS),
}
"""Location settings that a source does not read, and that are refused with it. `root` is allowed for CIFAR: tables that
also have rows of image files pass it to all rows."""


def read_source(data: DataRecipe) -> Source:
    """Read the data set of a recipe, before any split is made."""
    for name in UNUSED_SETTINGS.get(data.source, ()):
        if value := getattr(data, name):
            # `elfnet train --data.root images` without `folder` would train on the embedded digits, unnoticed.
            raise RequestError(
                f"data.{name}={value} is not used by data.source={data.source}; leave it out, or use a recipe for "
                "your own data: elfnet train folder, csv, features or hub"
            )
    return load_source(data.source, request=source_request(data))


def source_request(data: DataRecipe) -> SourceRequest:
    """The settings of a source from the data section of a recipe."""

    def path(text: str) -> Path | None:
        return Path(text).expanduser() if text else None

    return SourceRequest(
        directory=Path(data.directory) if data.directory else None,
        root=path(data.root),
        train=path(data.train),
        calibration=path(data.calibration),
        test=path(data.test),
        hub=data.hub,
        path_column=data.path_column,
        label_column=data.label_column,
        group_column=data.group_column,
        image_size=data.image_size,
        missing_files=data.unreadable,
    )


def load_splits(data: DataRecipe) -> Splits:
    """Read the data set of a recipe and make its training, calibration and test split."""
    source = read_source(data)
    if not isinstance(source.train, EncodedImages):
        _refuse_settings_of_image_files(data)
    _check_augmentation(data, source.train)
    splits = _whole_splits(data, source)
    if not data.cross_fitting:
        return splits
    return hold_out_fold(splits, folds=data.cross_fitting, fold=data.fold, seed=data.subset_seed)


def _whole_splits(data: DataRecipe, source: Source) -> Splits:
    """The splits of a recipe, with all folds of cross-fitting in the training split."""
    if data.protocol == PROTOCOL:
        return ldam_drw_splits(source, profile=data.profile, ratio=data.ratio, seed=data.subset_seed)
    return make_splits(
        source,
        profile=data.profile,
        ratio=data.ratio,
        pareto_alpha=data.pareto_alpha,
        step_tail_fraction=data.step_tail_fraction,
        counts=data.counts or None,
        largest=data.largest or None,
        hold_out_calibration=not data.cross_fitting,
        calibration_per_class=(data.calibration_per_class or None) if source.calibration is None else None,
        test_per_class=(data.test_per_class or None) if source.test is None else None,
        subset_seed=data.subset_seed,
        class_order_seed=None if data.class_order_seed < 0 else data.class_order_seed,
    )


def fewer_than_requested(data: DataRecipe, class_counts: Sequence[int]) -> str:
    """A sentence if classes have fewer training images than `data.counts` or `data.largest` ask for; else empty.

    Args:
        class_counts: training images per class.
    """
    wanted = max(data.counts) if data.counts else data.largest
    found = max(class_counts)
    # A network of cross-fitting is trained without its fold, as it says itself.
    if data.profile == "none" or data.fold or wanted <= found:
        return ""
    return (
        f"the largest class has {found:,} training images instead of {wanted:,}: the others are held out for "
        f"calibration or test; lower data.calibration_per_class to keep more"
    )


def frequency_groups(data: DataRecipe) -> FrequencyGroups:
    """The boundaries of the groups many, medium and few."""
    return FrequencyGroups(many_above=data.many_above, few_below=data.few_below)


def _refuse_settings_of_image_files(data: DataRecipe) -> None:
    for setting, used in (
        (f"augment={data.augment}", data.augment.startswith("resized")),
        (f"colour_jitter={data.colour_jitter}", data.colour_jitter > 0),
        (f"cache={data.cache}", bool(data.cache)),
    ):
        if used:
            raise RequestError(
                f"data.{setting} needs image files, and data.source={data.source} has images in memory; leave it out"
            )


def _check_augmentation(data: DataRecipe, train: Examples) -> None:
    height, width, channels = train.example_shape
    if isinstance(train, FeatureRows):
        for name, off in (("policy", "none"), ("cutout", 0), ("random_erasing", 0)):
            if getattr(data, name) != off:
                raise RequestError(
                    f"data.{name}={getattr(data, name)} changes images, and data.source={data.source} has feature "
                    f"rows; set data.{name}={off}"
                )
    if data.policy != "none" and channels not in (1, 3):
        raise RequestError(
            f"data.policy={data.policy} needs images with 1 or 3 channels, and those of "
            f"data.source={data.source} have {channels}; set data.policy=none"
        )
    if data.cutout > min(height, width):
        raise RequestError(
            f"data.cutout={data.cutout} is larger than the images of {height} x {width} pixels; lower it"
        )
