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
TRAIN, CALIBRATION, TEST = ("train",), ("calibration", "val", "valid", "validation"), ("test",)


@SOURCES.register("folder")
def folder(request: SourceRequest) -> Source[ImageFiles]:
    """Your own images: a folder of class folders, optionally below train, val and test folders (data.root)."""
    if request.root is None:
        raise RequestError("source=folder needs data.root: the folder that contains the class folders")
    request.refuse_group_column(str(request.root))
    places = split_folders(request.root)
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


def _same(one: Path, other: Path) -> bool:
    return one.resolve() == other.resolve()


def split_folders(root: Path) -> dict[str, Path | None]:
    """Find the folder of each split below a root.

    The root has split folders if there is a folder `train` and all folders have names of splits (`train` may also be
    the name of a class). Otherwise the root itself is the training folder, and the other splits are None.
    """
    inner = _folders(root)
    known = {*TRAIN, *CALIBRATION, *TEST}
    if "train" not in inner or not set(inner) <= known:
        return {"train": root, "calibration": None, "test": None}
    found = [name for name in CALIBRATION if name in inner]
    if len(found) > 1:
        raise WorkError(f"{root} has both {found[0]} and {found[1]}; keep one, or name it with data.calibration")
    return {
        "train": root / "train",
        "calibration": root / found[0] if found else None,
        "test": root / "test" if "test" in inner else None,
    }


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
        before = len(paths)
        paths += _images_below(os.fspath(root), name, above, ignored)
        counts.append(len(paths) - before)
        if counts[-1] == 0:
            found = f", only files of {', '.join(sorted(ignored))}" if ignored else ""
            raise WorkError(
                f"class folder {root / name} has no image ({', '.join(ENDINGS)}){found}; remove it, or put images "
                "into it"
            )
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
        raise WorkError(f"cannot list {error.filename}: {error.strerror}; check data.root") from error


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
