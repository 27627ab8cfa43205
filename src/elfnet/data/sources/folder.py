"""Image folders: one folder per class, optionally below folders for train, validation and test."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from elfnet.data.images.decode import SUFFIXES
from elfnet.data.images.files import ImageFiles, PathTable
from elfnet.data.sources.file_listing import Listing, images_of_listings
from elfnet.data.types import SOURCES, Source, SourceRequest
from elfnet.errors import RequestError, WorkError

ENDINGS = tuple(sorted(SUFFIXES))
CONVERTIBLE = (".heic", ".heif", ".avif", ".jxl", ".jp2", ".cr2", ".nef", ".arw", ".dng", ".raw", ".svg", ".psd")
"""Endings of images that are not read."""
Identity = tuple[int, int]
"""Device and inode of a folder."""
SPLIT_NAMES = {
    "train": ("train", "training"),
    "calibration": ("calibration", "val", "valid", "validation", "dev"),
    "test": ("test", "testing", "eval", "evaluation"),
}
"""Names of the folder of each split, in lower case."""


@SOURCES.register("folder")
def folder(request: SourceRequest) -> Source[ImageFiles]:
    """Your own images: a folder of class folders, optionally below train, val and test folders (data.root)."""
    if request.root is None:
        raise RequestError("source=folder needs data.root: the folder that contains the class folders")
    request.refuse_group_column(str(request.root))
    places = split_folders(request.root)
    if request.train is None and places["train"] == request.root:
        _refuse_lone_split(request.root)
    train, test = request.train or places["train"], request.test or places["test"]
    calibration = request.calibration or places["calibration"]
    assert train is not None
    # If the user names the validation folder as test data, calibration examples are held out from training data.
    if request.calibration is None and calibration is not None and test is not None and _same(calibration, test):
        calibration = None
    return images_of_listings(
        request,
        name="folder",
        train=list_folder(train),
        calibration=None if calibration is None else list_folder(calibration),
        test=None if test is None else list_folder(test),
    )


def _refuse_lone_split(root: Path) -> None:
    """Refuse a root that holds nothing but a folder for evaluation, which would be its only class."""
    inner = _folders(root)
    if len(inner) == 1 and inner[0].lower() in (*SPLIT_NAMES["calibration"], *SPLIT_NAMES["test"]):
        raise WorkError(f"{root} has a folder {inner[0]}, but none for training; add {root}/train")


def _same(one: Path, other: Path) -> bool:
    return one.resolve() == other.resolve()


def split_folders(root: Path) -> dict[str, Path | None]:
    """Find the folder of each split below a root, by its name in any case.

    The root has split folders if it has one for training, and nothing else or one for another split (`train` may also
    be the name of a class). Otherwise the root itself is the training folder, and the other splits are None.

    Raises:
        WorkError: Two folders are of the same split, or one beside those of splits is of none.
    """
    inner = _folders(root)
    found = {split: [name for name in inner if name.lower() in names] for split, names in SPLIT_NAMES.items()}
    named = [name for names in found.values() for name in names]
    others = [name for name in inner if name not in named]
    if not found["train"] or (others and len(named) == len(found["train"])):
        return {"train": root, "calibration": None, "test": None}
    if others:
        raise WorkError(
            f"{root} has folders of splits ({', '.join(named)}) and also {others[0]!r}; move it elsewhere, or if all "
            f"of them are classes, rename {found['train'][0]}"
        )
    for split, names in found.items():
        if len(names) > 1:
            raise WorkError(f"{root} has both {names[0]} and {names[1]} for the {split} split; keep one of them")
    return {split: root / names[0] if names else None for split, names in found.items()}


def list_folder(root: Path) -> Listing:
    """List all images below the class folders of a root, sorted by name, without hidden files and folders."""
    classes = _folders(root)
    if not classes:
        raise WorkError(f"{root} has no class folder; put the images of each class into a separate folder")
    paths: list[str] = []
    counts = []
    ignored: Counter[str] = Counter()
    real = root.resolve()
    above = frozenset(_identity(place) for place in (real, *real.parents))
    for name in classes:
        before, here = len(paths), Counter[str]()
        paths += _images_below(os.fspath(root), name, above, here)
        counts.append(len(paths) - before)
        if counts[-1] == 0:
            found = f", only files of {', '.join(sorted(here))}" if here else ""
            way_out = "convert them to JPEG or PNG" if set(here) & set(CONVERTIBLE) else "put images into it"
            raise WorkError(
                f"class folder {root / name} has no image ({', '.join(ENDINGS)}){found}; remove it, or {way_out}"
            )
        ignored += here
    ignored.update(f"{ending} outside class folders" for ending in _loose_images(root))
    return Listing(
        origin=str(root),
        root=root,
        paths=PathTable.of(paths),
        labels_N=np.repeat(np.arange(len(classes), dtype=np.int64), counts),
        label_names=tuple(classes),
        ignored=dict(sorted(ignored.items())),
    )


def ignored_line(ignored: Mapping[str, int]) -> str:
    """One line about files that are no known images; empty if there are none.

    Example:
        >>> ignored_line({".heic": 12, ".txt": 1})
        'ignored files: 12 .heic, 1 .txt; convert .heic to JPEG or PNG to use them'
    """
    if not ignored:
        return ""
    images = [ending for ending in ignored if ending in CONVERTIBLE]
    advice = f"; convert {' and '.join(images)} to JPEG or PNG to use them" if images else ""
    return "ignored files: " + ", ".join(f"{number:,} {ending}" for ending, number in ignored.items()) + advice


def _loose_images(root: Path) -> list[str]:
    """Endings of the images in the root itself, which have no class."""
    with os.scandir(root) as entries:
        names = [entry.name.lower() for entry in entries if not entry.name.startswith(".") and entry.is_file()]
    return [Path(name).suffix for name in names if name.endswith((*ENDINGS, *CONVERTIBLE))]


def _folders(root: Path) -> list[str]:
    try:
        with os.scandir(root) as entries:
            return sorted(entry.name for entry in entries if not entry.name.startswith(".") and entry.is_dir())
    except OSError as error:
        kind = RequestError if isinstance(error, (FileNotFoundError, NotADirectoryError)) else WorkError
        raise kind(f"cannot list {error.filename}: {error.strerror}; check data.root") from error


def _images_below(root: str, inner: str, above: frozenset[Identity], ignored: Counter[str]) -> Iterator[str]:
    """Paths of the images below `root/inner`, relative to the root.

    Args:
        above: Identities of the parent folders; a link to one of them is refused, since it would never end.
        ignored: Counts other files by their ending.
    """
    folder = f"{root}/{inner}"
    try:
        here = _identity(folder)
        with os.scandir(folder) as found:
            entries = sorted((entry.name, entry.is_dir()) for entry in found if not entry.name.startswith("."))
    except OSError as error:
        raise WorkError(f"cannot list {error.filename}: {error.strerror}; make it readable, or remove it") from error
    if here in above:
        raise WorkError(f"{folder} is a link to a folder above it; remove it")
    for name, is_folder in entries:
        path = f"{inner}/{name}"
        if is_folder:
            yield from _images_below(root, path, above | {here}, ignored)
        elif name.lower().endswith(ENDINGS):
            yield path
        else:
            ignored[os.path.splitext(name)[1].lower() or "without ending"] += 1  # noqa: PTH122 - faster than Path


def _identity(folder: str | Path) -> Identity:
    """Device and inode, which are equal for a folder and every link to it."""
    found = os.stat(folder)  # noqa: PTH116 - str is faster for many folders
    return found.st_dev, found.st_ino
