"""What the splits look like: as a dictionary for programs, as bars in a terminal for people."""

# Shapes: C classes

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

from elfnet.data.check_files import DeepCheck
from elfnet.data.images.files import PathTable
from elfnet.data.long_tail import GROUP_NAMES, FrequencyGroups
from elfnet.data.sources.features import features as feature_source
from elfnet.data.sources.folder import list_folder, split_folders
from elfnet.data.sources.listing import Listing, number_groups
from elfnet.data.sources.lists import read_listing
from elfnet.data.splits import Splits
from elfnet.data.types import Ints, SourceRequest

MAX_CLASSES_BY_NAME = 60
_CURVE_LINES = 40
_GROUP_STYLES = ("green", "yellow", "red")
_BLOCKS = " ▏▎▍▌▋▊▉█"  # eighths of a character


def count_chart(class_names: Sequence[str], counts_C: Ints, groups: FrequencyGroups) -> Table:
    """Bars of the training counts, coloured by frequency group."""
    if len(class_names) <= MAX_CLASSES_BY_NAME:
        return _class_bars(class_names, counts_C, groups)
    return _rank_curve(counts_C, groups)


def _class_bars(class_names: Sequence[str], counts_C: Ints, groups: FrequencyGroups) -> Table:
    table = _chart("class")
    for label, group in enumerate(groups.of_classes(counts_C)):
        table.add_row(Text(class_names[label]), *_cells(int(counts_C[label]), int(counts_C.max()), int(group)))
    return table


def _rank_curve(counts_C: Ints, groups: FrequencyGroups) -> Table:
    """Classes sorted by count and cut into equal runs; each line shows the run's mean."""
    sorted_C = np.sort(counts_C)[::-1]
    table = _chart("ranks")
    table.columns[1].header = "mean train"
    end = 0
    for run in np.array_split(sorted_C, _CURVE_LINES):
        start, end = end + 1, end + len(run)
        mean = int(np.rint(run.mean()))
        group = int(groups.of_classes(run)[len(run) // 2])
        table.add_row(Text(f"{start}-{end}"), *_cells(mean, int(sorted_C[0]), group))
    return table


def _chart(first: str) -> Table:
    table = Table(box=None, pad_edge=False, expand=True)
    table.add_column(first, overflow="ellipsis", no_wrap=True, max_width=24)
    table.add_column("train", justify="right", no_wrap=True)
    table.add_column("group", no_wrap=True)
    table.add_column("", ratio=1)
    return table


def _cells(count: int, largest: int, group: int) -> tuple[RenderableType, ...]:
    style = _GROUP_STYLES[group]
    return Text(f"{count:,}"), Text(GROUP_NAMES[group], style=style), _Bar(count / largest, style)


@dataclass(frozen=True)
class _Bar:
    """A horizontal bar as wide as the share of the space it is given; never wholly invisible."""

    share: float
    style: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        eighths = max(round(self.share * options.max_width * 8), 1)
        if options.ascii_only:
            bar = "#" * max(round(eighths / 8), 1)
        else:
            bar = "█" * (eighths // 8) + _BLOCKS[eighths % 8].strip()
        yield Segment(bar, Style.parse(self.style))
        yield Segment.line()

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(1, options.max_width)


def describe(splits: Splits, groups: FrequencyGroups) -> dict[str, Any]:
    """Counts, groups and the imbalance ratio as plain data."""
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
        **count_facts(counts_C, groups),
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


def render(splits: Splits, groups: FrequencyGroups) -> RenderableType:
    """The same for a terminal: a summary, then one bar a class, or a curve over the ranks where classes are many."""
    facts = describe(splits, groups)
    examples = facts["examples"]
    lines = [
        f"{facts['source']}: {facts['classes']} classes, {' x '.join(map(str, facts['image_shape']))} images",
        f"examples: {examples['train']:,} train, {examples['calibration']:,} calibration, {examples['test']:,} test",
        *count_lines(facts),
    ]
    if missing := splits.missing_from_calibration:
        shown = ", ".join(str(label) for label in missing[:10]) + (" ..." if len(missing) > 10 else "")
        lines.append(f"without calibration examples: {len(missing)} classes ({shown})")
    chart = count_chart(splits.class_names, splits.class_counts_C, groups)
    # Text and not str: a class may be called "[bold]", and nothing of it is markup here.
    return Group(Text("\n".join(lines)), Text(""), chart)


def count_facts(counts_C: Ints, groups: FrequencyGroups) -> dict[str, Any]:
    """What follows from the training counts alone."""
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


def count_lines(facts: dict[str, Any]) -> list[str]:
    """The same in words."""
    return [
        f"imbalance ratio: {facts['imbalance_ratio']:.4g}  "
        f"(largest class {facts['largest_class']:,}, smallest {facts['smallest_class']:,})",
        "groups: "
        + ", ".join(f"{name} {_dash_if_empty(facts['groups'][name])}" for name in GROUP_NAMES)
        + f"  ({facts['group_rule']} training examples)",
    ]


def _dash_if_empty(group: dict[str, int]) -> str:
    return f"{group['classes']} classes / {group['examples']:,} examples" if group["classes"] else "-"


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
