"""Descriptions of a data set as plain data: class counts, frequency groups, imbalance ratio.

`describe_splits` describes the splits of a recipe. `describe_listing` describes the files at a path, which
`listings_at` lists.
"""

# Shapes: N examples, C classes, S splits

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from elfnet.data.check_files import DeepCheck
from elfnet.data.images.files import PathTable
from elfnet.data.long_tail import GROUP_NAMES, FrequencyGroups
from elfnet.data.sources.arrays import features as feature_source
from elfnet.data.sources.file_listing import Listing, number_groups
from elfnet.data.sources.folder import list_folder, split_folders
from elfnet.data.sources.lists import read_listing
from elfnet.data.splits import Splits, held_out_by_default
from elfnet.data.types import Ints, SourceRequest
from elfnet.recipe.automatic import MIN_CALIBRATION_IMAGES

Listings = dict[str, Listing]
"""The listing of each split by its name: `train`, and possibly `calibration` and `test`."""


def describe_splits(splits: Splits, groups: FrequencyGroups) -> dict[str, Any]:
    """Describe three splits: sizes, class counts, frequency groups and imbalance ratio, ready for JSON."""
    counts_C = splits.class_counts_C
    group_C = groups.of_classes(counts_C)
    return {
        "source": splits.source_name,
        "fingerprint": splits.fingerprint,
        "classes": len(splits.class_names),
        "image_shape": list(splits.train.example_shape),
        "examples": {
            "train": len(splits.train),
            "calibration": len(splits.calibration),
            "test": len(splits.test),
        },
        **_count_facts(counts_C, groups),
        "missing_from_calibration": list(splits.missing_from_calibration),
        "per_class": [
            {
                "label": label,
                "name": name,
                "group": GROUP_NAMES[group_C[label]],
                "train": int(counts_C[label]),
                "calibration": int(splits.calibration_counts_C[label]),
                "test": int(splits.test_counts_C[label]),
            }
            for label, name in enumerate(splits.class_names)
        ],
    }


def describe_listing(listings: Listings, groups: FrequencyGroups, deep: DeepCheck | None = None) -> dict[str, Any]:
    """Describe the listings of a path: sizes, class counts, frequency groups and imbalance ratio, ready for JSON.

    Args:
        deep: Result of reading every file; added as `files`.
    """
    train = listings["train"]
    names = train.label_names
    count_SC = {split: np.bincount(one.labels_N, minlength=len(names)) for split, one in listings.items()}
    group_C = groups.of_classes(count_SC["train"])
    facts: dict[str, Any] = {
        "source": train.origin,
        "classes": len(names),
        "examples": {split: len(one) for split, one in listings.items()},
        **_count_facts(count_SC["train"], groups),
        "per_class": [
            {"label": label, "name": name, "group": GROUP_NAMES[group_C[label]]}
            | {split: int(count_C[label]) for split, count_C in count_SC.items()}
            for label, name in enumerate(names)
        ],
    }
    if train.groups is None and (missing := {"calibration", "test"} - set(listings)):
        kept = held_out_by_default(count_SC["train"], calibration="calibration" in missing, test="test" in missing)
        facts["after_hold_out"] = {split: int(count_C.sum()) for split, count_C in kept.items()}
        if "calibration" in kept:
            facts["cross_fitting"] = bool(kept["calibration"].min() < MIN_CALIBRATION_IMAGES)
            facts["missing_from_calibration"] = np.flatnonzero(kept["calibration"] == 0).tolist()
    ignored: Counter[str] = Counter()
    for one in listings.values():
        ignored.update(one.ignored)
    facts["ignored"] = dict(ignored)
    if train.groups is not None:
        numbered = number_groups({split: one.groups for split, one in listings.items()})
        facts["group_column"] = {
            split: {"groups": len(sizes), "largest": int(sizes.max())}
            for split, group_N in numbered.items()
            if group_N is not None and len(sizes := np.unique(group_N, return_counts=True)[1])
        }
    if deep is not None:
        facts["files"] = deep.to_dict()
    return facts


def _count_facts(counts_C: Ints, groups: FrequencyGroups) -> dict[str, Any]:
    """Everything that follows from the training counts alone."""
    group_C = groups.of_classes(counts_C)
    return {
        "largest_class": int(counts_C.max()),
        "smallest_class": int(counts_C.min()),
        "imbalance_ratio": float(counts_C.max() / counts_C.min()),
        "group_rule": groups.rule,
        "groups": {
            name: {"classes": int((group_C == index).sum()), "examples": int(counts_C[group_C == index].sum())}
            for index, name in enumerate(GROUP_NAMES)
        },
    }


def listings_at(path: Path, request: SourceRequest, *, features: bool = False) -> Listings:
    """List the examples at a path: a folder of class folders, a list, a table or an .npz file.

    Args:
        request: Names the columns of tables, and the calibration and test data if they are separate.
        features: Whether a Parquet file holds features instead of image paths.
    """
    if features or path.suffix.lower() == ".npz":
        return _feature_listings(path, request)
    found: Listings = {}
    if path.is_dir():
        found = {split: _listing(place, request) for split, place in split_folders(path).items() if place is not None}
    else:
        found["train"] = _listing(path, request)
    for split, place in (("calibration", request.calibration), ("test", request.test)):
        if place is not None:
            found[split] = _listing(place, request)
    train = found["train"]
    train.check_for_training()
    return {split: one if split == "train" else one.with_labels_of(train) for split, one in found.items()}


def _listing(path: Path, request: SourceRequest) -> Listing:
    if not path.is_dir():
        return read_listing(path, request)
    request.refuse_group_column(str(path))
    return list_folder(path)


def _feature_listings(file: Path, request: SourceRequest) -> Listings:
    source = feature_source(replace(request, train=file))
    parts = {"train": source.train, "calibration": source.calibration, "test": source.test}
    return {
        split: Listing(
            origin=str(file),
            root=file.parent,
            paths=PathTable.of([]),
            labels_N=rows.labels_N,
            label_names=source.class_names,
            groups=None if rows.groups_N is None else tuple(map(str, rows.groups_N.tolist())),
        )
        for split, rows in parts.items()
        if rows is not None
    }
