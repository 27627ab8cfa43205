"""A listing: which files there are, of which class and group. Read from a folder, a list, a table or JSON."""

# Shapes: N examples, C classes
# Shapes: N examples

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from elfnet.data.images.files import ImageFiles, PathTable
from elfnet.data.types import Ints, Source, SourceRequest
from elfnet.errors import RequestError, WorkError


@dataclass(frozen=True, eq=False, kw_only=True)
class Listing:
    """One split as it is written down; no image has been looked at.

    Attributes:
        origin: The file or folder it was read from, for messages.
        root: What the paths are relative to.
        paths: Of the files; empty for feature arrays, which have rows instead.
        label_names: What classes are called, in order of labels.
        numbered: Whether the file has numbers for classes, so that a number means the same class in every split;
            otherwise names do.
        groups: Name of each example's group; None without groups.
    """

    origin: str
    root: Path
    paths: PathTable
    labels_N: Ints
    label_names: tuple[str, ...]
    numbered: bool = False
    groups: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.labels_N)

    def to_train_on(self) -> "Listing":
        """Itself; refused without examples, with one class, a file listed twice, or a gap in the numbers of classes."""
        if not len(self):
            raise WorkError(f"{self.origin} lists no example; check it, or name another")
        if self.numbered:
            refuse_gap(self.labels_N, self.origin)
        refuse_one_class(self.label_names, self.origin)
        self._refuse_twice()
        return self

    def with_labels_of(self, train: "Listing") -> "Listing":
        """The same listing with the training listing's labels; a class that is not trained on is refused."""
        if not len(self):
            raise WorkError(f"{self.origin} lists no example; check it, or leave it out")
        self._refuse_twice()
        if self.numbered and train.numbered:
            largest, last = int(self.labels_N.max()), len(train.label_names) - 1
            if largest > last:
                raise WorkError(
                    f"{self.origin} has label {largest}, but {train.origin} has labels 0..{last}; "
                    "number the classes alike in both"
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

    def _refuse_twice(self) -> None:
        """A file that is listed twice could be trained on and measured on, or be of two classes."""
        found = self.paths.first_twice()
        if found is None:
            return
        one, other = (self._label(position) for position in found)
        labels = f"as {one!r} and as {other!r}" if one != other else f"as {one!r}"
        raise WorkError(f"{self.origin} lists {self.paths[found[0]]} twice, {labels}; keep one of them")

    def _label(self, position: int) -> str:
        """As the file has it."""
        label = int(self.labels_N[position])
        return str(label) if self.numbered else self.label_names[label]


def refuse_one_class(names: Sequence[str], origin: str) -> None:
    """Nothing can be learnt from one class."""
    if len(names) == 1:
        raise WorkError(f"{origin} has one class only ({names[0]!r}); a classifier needs two")


def refuse_gap(labels_N: Ints, origin: str) -> None:
    """Labels must run from 0 on without a gap; the first label that is missing is named."""
    present = np.unique(labels_N)
    if present[-1] != len(present) - 1:
        missing = int((present != np.arange(len(present))).argmax())
        raise WorkError(
            f"{origin} has no example of label {missing}, but has label {present[missing]}; labels must run from 0 on "
            "without a gap: renumber them"
        )


def images_of_listings(
    request: SourceRequest,
    *,
    name: str,
    train: Listing,
    calibration: Listing | None = None,
    test: Listing | None = None,
) -> Source[ImageFiles]:
    """A source of image files from the listings of its splits.

    Args:
        name: The source's name, for messages.
    """
    train.to_train_on()
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
    """Group names as numbers, the same in every split; a group that two splits share is refused by name."""
    number: dict[str, int] = {}
    owner: dict[str, str] = {}
    numbered: dict[str, Ints | None] = {}
    for split, names in groups.items():
        if names is None:
            numbered[split] = None
            continue
        # In order of appearance, not of a set: which groups are held out depends on their numbers.
        for one in dict.fromkeys(names):
            if owner.setdefault(one, split) != split:
                raise WorkError(
                    f"group {one!r} is in both {owner[one]} and {split}; give it to one of them, or leave "
                    "data.group_column out"
                )
            number.setdefault(one, len(number))
        numbered[split] = np.array([number[one] for one in names], dtype=np.int64)
    return numbered


def _refuse_shared_files(listings: dict[str, Listing]) -> None:
    """An image that is trained on and measured on makes every figure a lie. Compared by path; `--deep` by content."""
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
                "take it out of one of them"
            )
        owner.update(dict.fromkeys(paths, split))
