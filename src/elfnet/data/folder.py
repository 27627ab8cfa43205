"""A folder of class folders, with or without train, val and test folders above them."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from elfnet.data.image_files import ImageFiles
from elfnet.data.listed_images import images_of_listings
from elfnet.data.listing import Listing
from elfnet.data.path_table import PathTable
from elfnet.data.source import SOURCES, Source, SourceRequest
from elfnet.errors import RequestError, WorkError

ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")
TRAIN, CALIBRATION, TEST = ("train",), ("calibration", "val", "valid", "validation"), ("test",)


@SOURCES.register("folder")
def folder(request: SourceRequest) -> Source[ImageFiles]:
    """Images of your own: a folder of class folders, with or without train, val and test above them (data.root)."""
    if request.root is None:
        raise RequestError("source=folder needs data.root: the folder that holds the class folders")
    places = split_folders(request.root)
    train, test = request.train or places["train"], request.test or places["test"]
    calibration = request.calibration or places["calibration"]
    assert train is not None
    # Who names the validation folder as the test data means that; calibration is then cut from the training data.
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
    """The folder of each split: below the root if it has a folder `train`, else the root itself for train only.

    A root counts as divided only if all its folders are called like splits: `train` may also be a class.
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
    """Every image below each class folder; classes and files in order of their names, hidden ones left out."""
    classes = _folders(root)
    if not classes:
        raise WorkError(f"{root} has no class folder; put the images of each class into a folder of its own")
    paths: list[str] = []
    counts = []
    for name in classes:
        before = len(paths)
        paths += _images_below(os.fspath(root), name)
        counts.append(len(paths) - before)
        if counts[-1] == 0:
            raise WorkError(
                f"class folder {root / name} has no image ({', '.join(ENDINGS)}); remove it, or put images into it"
            )
    return Listing(
        origin=str(root),
        root=root,
        paths=PathTable.of(paths),
        labels_N=np.repeat(np.arange(len(classes), dtype=np.int64), counts),
        label_names=tuple(classes),
    )


def _folders(root: Path) -> list[str]:
    try:
        with os.scandir(root) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
    except OSError as error:
        raise WorkError(f"cannot list {root}: {error.strerror or error}; check data.root") from error


def _images_below(root: str, inner: str) -> Iterator[str]:
    """Paths relative to the root, folder by folder."""
    try:
        with os.scandir(f"{root}/{inner}") as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError as error:
        raise WorkError(f"cannot list {root}/{inner}: {error.strerror or error}") from error
    for entry in entries:
        if entry.name.startswith("."):
            continue
        path = f"{inner}/{entry.name}"
        if entry.is_dir():
            yield from _images_below(root, path)
        elif entry.name.lower().endswith(ENDINGS):
            yield path
