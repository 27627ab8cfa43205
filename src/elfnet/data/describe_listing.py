"""What a folder, list, table or feature arrays say before any image is looked at: classes, counts, groups, ratio."""

# Shapes: C classes

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from elfnet.data.count_chart import count_chart
from elfnet.data.deep_check import DeepCheck
from elfnet.data.describe import count_facts, count_lines
from elfnet.data.feature_rows import features as feature_source
from elfnet.data.folder import list_folder, split_folders
from elfnet.data.groups import GROUP_NAMES, FrequencyGroups
from elfnet.data.listed_images import number_groups
from elfnet.data.listing import Listing
from elfnet.data.lists import read_listing
from elfnet.data.path_table import PathTable
from elfnet.data.source import SourceRequest

Listings = dict[str, Listing]


def listings_at(path: Path, request: SourceRequest, *, features: bool = False) -> Listings:
    """The listings of a folder of class folders, of a list, table or .npz; other splits as the request names them.

    Args:
        features: a Parquet file holds features; else it names images.
    """
    if features or path.suffix.lower() == ".npz":
        return _features_at(path, request)
    found: Listings = {}
    if path.is_dir():
        found = {split: _listing(place, request) for split, place in split_folders(path).items() if place is not None}
    else:
        found["train"] = _listing(path, request)
    for split, place in (("calibration", request.calibration), ("test", request.test)):
        if place is not None:
            found[split] = _listing(place, request)
    train = found["train"].to_train_on()
    return {split: one if split == "train" else one.with_labels_of(train) for split, one in found.items()}


def _listing(place: Path, request: SourceRequest) -> Listing:
    if not place.is_dir():
        return read_listing(place, request)
    request.refuse_group_column(str(place))
    return list_folder(place)


def _features_at(file: Path, request: SourceRequest) -> Listings:
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


def describe_listing(listings: Listings, groups: FrequencyGroups, deep: DeepCheck | None = None) -> dict[str, Any]:
    """The facts as plain data."""
    train = listings["train"]
    names = train.label_names
    count_SC = {split: np.bincount(one.labels_N, minlength=len(names)) for split, one in listings.items()}
    group_C = groups.of_classes(count_SC["train"])
    facts: dict[str, Any] = {
        "source": train.origin,
        "classes": len(names),
        "examples": {split: len(one) for split, one in listings.items()},
        **count_facts(count_SC["train"], groups),
        "per_class": [
            {"label": label, "name": name, "group": GROUP_NAMES[group_C[label]]}
            | {split: int(count_C[label]) for split, count_C in count_SC.items()}
            for label, name in enumerate(names)
        ],
    }
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


def render_listing(listings: Listings, groups: FrequencyGroups, deep: DeepCheck | None = None) -> RenderableType:
    """The same for a terminal."""
    facts = describe_listing(listings, groups, deep)
    examples = ", ".join(f"{count:,} {split}" for split, count in facts["examples"].items())
    lines = [f"{facts['source']}: {facts['classes']:,} classes", f"examples: {examples}", *count_lines(facts)]
    for split, column in facts.get("group_column", {}).items():
        lines.append(f"{split}: {column['groups']:,} groups that stay together, the largest of {column['largest']:,}")
    lines += deep.lines() if deep is not None else []
    counts_C = np.bincount(listings["train"].labels_N)
    chart = count_chart(listings["train"].label_names, counts_C, groups)
    # Text and not str: a class may be called "[bold]", and nothing of it is markup here.
    return Group(Text("\n".join(lines)), Text(""), chart)
