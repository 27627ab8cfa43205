"""Listings become a source of image files: one numbering of classes and groups, and nothing shared between splits."""

# Shapes: N examples

import os
from collections.abc import Sequence

import numpy as np

from elfnet.data.examples import Ints
from elfnet.data.image_files import ImageFiles
from elfnet.data.listing import Listing
from elfnet.data.source import Source, SourceRequest
from elfnet.errors import RequestError, WorkError


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
