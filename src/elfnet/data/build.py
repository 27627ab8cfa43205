"""The data section of a recipe, flattened into plain arguments."""

from pathlib import Path

from elfnet.data.images.files import EncodedImages
from elfnet.data.long_tail import FrequencyGroups
from elfnet.data.sources import cifar, digits, features, folder, hub, lists
from elfnet.data.sources.features import FeatureRows
from elfnet.data.splits import Splits, make_splits
from elfnet.data.types import SOURCES, Examples, Source, SourceRequest
from elfnet.errors import RequestError
from elfnet.recipe.schema import DataRecipe

__all__ = ["SOURCES", "cifar", "digits", "features", "folder", "hub", "lists", "load_source"]


def load_source(name: str, directory: Path | None = None, *, request: SourceRequest | None = None) -> Source:
    """Read the source `name`; `directory` is searched first for its files, `request` says more.

    Example:
        >>> load_source("digits").class_names[:3]
        ('0', '1', '2')
    """
    return SOURCES[name](request or SourceRequest(directory=directory))


_SPLITS = ("train", "calibration", "test")
NOT_READ = {
    "digits": ("root", "hub", *_SPLITS),
    "cifar10": ("hub", *_SPLITS),
    "cifar100": ("hub", *_SPLITS),
    "features": ("root", "hub"),
    "folder": ("hub",),
    "lists": ("hub",),
    "hub": ("root", *_SPLITS),
}
"""Settings that name data and that a source does not look at. `root` of CIFAR is let pass: tables that also hold
columns of image files give it to all."""


def source_of(data: DataRecipe) -> Source:
    """Read the source, before any split is made."""
    for name in NOT_READ.get(data.source, ()):
        if value := getattr(data, name):
            # Whoever leaves out `folder` would train on the embedded digits, and not notice.
            raise RequestError(
                f"data.{name}={value} is not read by data.source={data.source}; leave it out, or name a recipe for "
                "data of your own: elfnet train folder, csv, features or hub"
            )
    return load_source(data.source, request=request_of(data))


def request_of(data: DataRecipe) -> SourceRequest:
    def place(text: str) -> Path | None:
        return Path(text).expanduser() if text else None

    return SourceRequest(
        directory=Path(data.directory) if data.directory else None,
        root=place(data.root),
        train=place(data.train),
        calibration=place(data.calibration),
        test=place(data.test),
        hub=data.hub,
        path_column=data.path_column,
        label_column=data.label_column,
        group_column=data.group_column,
        image_size=data.image_size,
        missing_files=data.unreadable,
    )


def load_splits(data: DataRecipe) -> Splits:
    """Read the source and make the three splits."""
    source = source_of(data)
    if not isinstance(source.train, EncodedImages):
        _refuse_what_needs_files(data)
    _refuse_augmentation_that_does_not_fit(data, source.train)
    return make_splits(
        source,
        profile=data.profile,
        ratio=data.ratio,
        pareto_alpha=data.pareto_alpha,
        step_tail_fraction=data.step_tail_fraction,
        counts=data.counts or None,
        largest=data.largest or None,
        calibration_per_class=(data.calibration_per_class or None) if source.calibration is None else None,
        test_per_class=(data.test_per_class or None) if source.test is None else None,
        subset_seed=data.subset_seed,
        class_order_seed=None if data.class_order_seed < 0 else data.class_order_seed,
    )


def frequency_groups(data: DataRecipe) -> FrequencyGroups:
    return FrequencyGroups(many_above=data.many_above, few_below=data.few_below)


def _refuse_what_needs_files(data: DataRecipe) -> None:
    for setting, used in (
        (f"augment={data.augment}", data.augment.startswith("resized")),
        (f"colour_jitter={data.colour_jitter}", data.colour_jitter > 0),
        (f"cache={data.cache}", bool(data.cache)),
    ):
        if used:
            raise RequestError(
                f"data.{setting} is for image files, and data.source={data.source} is in memory; leave it out"
            )


def _refuse_augmentation_that_does_not_fit(data: DataRecipe, train: Examples) -> None:
    height, width, channels = train.example_shape
    if isinstance(train, FeatureRows):
        for setting, used in (
            (f"policy={data.policy}", data.policy != "none"),
            (f"cutout={data.cutout}", data.cutout > 0),
            (f"random_erasing={data.random_erasing}", data.random_erasing > 0),
        ):
            if used:
                raise RequestError(
                    f"data.{setting} changes images, and data.source={data.source} has feature rows; leave it out"
                )
    if data.policy != "none" and channels not in (1, 3):
        raise RequestError(
            f"data.policy={data.policy} is for images of 1 or 3 channels, and those of "
            f"data.source={data.source} have {channels}; set data.policy=none"
        )
    if data.cutout > min(height, width):
        raise RequestError(
            f"data.cutout={data.cutout} is larger than the images, which have {height} x {width} pixels; lower it"
        )
