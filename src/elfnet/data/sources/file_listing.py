"""Listings: the files of a split with their classes and groups, as a folder, list, table or JSON file names them.

The listings of all splits are checked against each other and become a source of image files.
"""

# Shapes: N examples, C classes

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from elfnet.data.images.files import ImageFiles, PathTable
from elfnet.data.types import Ints, Source, SourceRequest
from elfnet.errors import RequestError, WorkError


@dataclass(frozen=True, eq=False, kw_only=True)
class Listing:
    """The examples of one split; no image has been read.

    Attributes:
        origin: File or folder that the listing comes from, for messages.
        root: Base directory of the paths.
        paths: Paths of the files; empty for feature arrays, which have rows instead.
        labels_N: Class of each example.
        label_names: Names of the classes by label.
        numbered: Whether classes are identified by number in all splits; otherwise they are identified by name.
        groups: Name of the group of each example; None without groups.
        ignored: Number of files that are no known images, by ending.
    """

    origin: str
    root: Path
    paths: PathTable
    labels_N: Ints
    label_names: tuple[str, ...]
    numbered: bool = False
    groups: tuple[str, ...] | None = None
    ignored: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.labels_N)

    def check_for_training(self) -> None:
        """Check a training listing.

        Raises:
            WorkError: If it has no example, only one class, a file twice, or a gap in the numbers of the classes.
        """
        if not len(self):
            raise WorkError(f"{self.origin} lists no example; check it, or name another one")
        if self.numbered:
            refuse_gap(self.labels_N, self.origin)
        refuse_one_class(self.label_names, self.origin)
        self._refuse_duplicates()

    def with_labels_of(self, train: "Listing") -> "Listing":
        """This listing with the labels of the training listing.

        Raises:
            WorkError: If it has no example, a file twice, or a class that the training listing does not have.
        """
        if not len(self):
            raise WorkError(f"{self.origin} lists no example; check it, or leave it out")
        self._refuse_duplicates()
        if self.numbered and train.numbered:
            largest, last = int(self.labels_N.max()), len(train.label_names) - 1
            if largest > last:
                raise WorkError(
                    f"{self.origin} has label {largest}, but {train.origin} has labels 0..{last}; "
                    "use the same numbers for classes in both"
                )
            return replace(self, label_names=train.label_names)
        number = {name: label for label, name in enumerate(train.label_names)}
        unknown = [name for name in self.label_names if name not in number]
        if unknown:
            raise WorkError(
                f"{self.origin} has class {unknown[0]!r}, which {train.origin} does not have; "
                "remove it, or add training examples of it"
            )
        to_train_C = np.array([number[name] for name in self.label_names], dtype=np.int64)
        return replace(self, labels_N=to_train_C[self.labels_N], label_names=train.label_names)

    def _refuse_duplicates(self) -> None:
        """Refuse a file that is listed twice: it could be in two splits or have two classes."""
        found = self.paths.first_duplicate()
        if found is None:
            return
        one, other = (self._label(position) for position in found)
        labels = f"as {one!r} and as {other!r}" if one != other else f"as {one!r}"
        raise WorkError(f"{self.origin} lists {self.paths[found[0]]} twice, {labels}; keep one of them")

    def _label(self, position: int) -> str:
        """The label of an example as the file has it."""
        label = int(self.labels_N[position])
        return str(label) if self.numbered else self.label_names[label]


def refuse_one_class(names: Sequence[str], origin: str) -> None:
    """Raise WorkError if there is only one class."""
    if len(names) == 1:
        raise WorkError(f"{origin} has only one class ({names[0]!r}); a classifier needs at least two")


def refuse_gap(labels_N: Ints, origin: str) -> None:
    """Raise WorkError if the labels are not 0, 1, 2 ... without a gap."""
    present = np.unique(labels_N)
    if present[-1] != len(present) - 1:
        missing = int((present != np.arange(len(present))).argmax())
        raise WorkError(
            f"{origin} has no example of label {missing}, but has label {present[missing]}; labels must start at 0 "
            "and have no gap: renumber them"
        )


def images_of_listings(
    request: SourceRequest,
    *,
    name: str,
    train: Listing,
    calibration: Listing | None = None,
    test: Listing | None = None,
) -> Source[ImageFiles]:
    """Make a source of image files from the listings of its splits.

    Args:
        name: Name of the source, for messages.

    Raises:
        WorkError: If a listing is wrong by itself, or does not fit the training listing.
        RequestError: If two splits share a file.
    """
    train.check_for_training()
    others = {"calibration": calibration, "test": test}
    named = {split: listing.with_labels_of(train) for split, listing in others.items() if listing is not None}
    listings = {"train": train, **named}
    _refuse_shared_files(listings)
    groups = number_groups({split: listing.groups for split, listing in listings.items()})
    parts = {
        split: ImageFiles(
            root=listing.root,
            paths=listing.paths,
            labels_N=listing.labels_N,
            image_size=request.image_size,
            groups_N=groups[split],
            missing_files=request.missing_files,
        )
        for split, listing in listings.items()
    }
    return Source(
        name=name,
        class_names=train.label_names,
        train=parts["train"],
        test=parts.get("test"),
        horizontal_flip=True,
        calibration=parts.get("calibration"),
    )


def number_groups(groups: dict[str, Sequence[str] | None]) -> dict[str, Ints | None]:
    """Number the groups of all splits.

    Args:
        groups: Name of the group of each example, by split; None for a split without groups.

    Returns:
        Number of the group of each example, by split. A name has the same number in every split.

    Raises:
        WorkError: If two splits share a group.
    """
    number: dict[str, int] = {}
    owner: dict[str, str] = {}
    numbered: dict[str, Ints | None] = {}
    for split, names in groups.items():
        if names is None:
            numbered[split] = None
            continue
        # In order of appearance: the held-out groups depend on the numbers, so these must be reproducible.
        for one in dict.fromkeys(names):
            if owner.setdefault(one, split) != split:
                raise WorkError(
                    f"group {one!r} is in both {owner[one]} and {split}; keep it in one of them, or leave "
                    "data.group_column out"
                )
            number.setdefault(one, len(number))
        numbered[split] = np.array([number[one] for one in names], dtype=np.int64)
    return numbered


def _refuse_shared_files(listings: dict[str, Listing]) -> None:
    """Refuse a file in two splits, since results on training images are worthless. `--deep` compares contents, too."""
    if len(listings) == 1:
        return
    owner: dict[str, str] = {}
    for split, listing in listings.items():
        root = os.fspath(listing.root.resolve())
        paths = dict.fromkeys(f"{root}/{path}" for path in listing.paths)
        shared = next((path for path in paths if path in owner), None)
        if shared is not None:
            other = owner[shared]
            raise RequestError(
                f"{shared} is in both {listings[other].origin} ({other}) and {listing.origin} ({split}); "
                "remove it from one of them"
            )
        owner.update(dict.fromkeys(paths, split))
