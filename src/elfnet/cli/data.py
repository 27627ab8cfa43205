"""The command `elfnet data ls | prepare | describe`, and the terminal rendering of a description."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

from elfnet.cli.arguments import Parser, add_recipe_flags, recipe_overrides
from elfnet.cli.output import console, print_json
from elfnet.errors import RequestError
from elfnet.recipe.load import load_recipe, recipe_names
from elfnet.recipe.schema import Recipe

DESCRIBE_PATH_SETTINGS = (
    *("data.source", "data.root", "data.calibration", "data.test"),
    *("data.path_column", "data.label_column", "data.group_column"),
    *("data.many_above", "data.few_below"),
    *("data.workers", "data.max_megapixels", "data.max_megabytes"),
)
"""Settings that `describe PATH` reads; all others are about the splits that a recipe makes."""


def parser() -> Parser:
    """The arguments of the command."""
    parser = Parser(
        "data",
        "ls: list the data sets. prepare: find, download and check one; with --data.cache also pack its images.\n"
        "describe: show class counts, frequency groups and imbalance ratio of the files at a path (a folder of class\n"
        "folders, a list, a table or an .npz file; --deep also reads the images), or of the splits of a recipe.",
        usage="ls | prepare NAME | describe PATH|NAME|RECIPE [--deep] [--SECTION.FIELD VALUE ...] [--json]",
        example="elfnet data describe cifar100-lt/ce --data.ratio 50",
    )
    parser.add_argument("what", choices=("ls", "prepare", "describe"), help="what to do")
    parser.add_argument(
        "name", nargs="?", help="name of a data set; for describe also a path, a recipe or a .toml file"
    )
    parser.add_argument(
        "--deep",
        action="store_true",
        help="describe PATH: also read every file and report sizes, unreadable files and duplicates",
    )
    parser.add_json_flag()
    add_recipe_flags(parser)
    return parser


def run(words: Sequence[str]) -> int:
    """Run the command with these arguments; return the exit code."""
    reader = parser()
    args = reader.parse_strictly(words)

    from elfnet.data.build import SOURCES

    if args.what == "ls":
        reader.refuse_name(args.name)
        return _list(as_json=args.json)
    if args.name is None:
        reader.error(f"name a data set: {', '.join(SOURCES)}")
    overrides = recipe_overrides(args)
    is_path = args.what == "describe" and _is_path(args.name)
    if args.deep and not is_path:
        reader.error("--deep reads the files of a folder, a list or a table: give its path to describe")
    if is_path:
        return _describe_path(Path(args.name).expanduser(), overrides, deep=args.deep, as_json=args.json)
    recipe = _recipe(args.name, overrides)
    return _prepare(recipe, as_json=args.json) if args.what == "prepare" else _describe(recipe, as_json=args.json)


def _is_path(name: str) -> bool:
    """Whether a name is an existing path, and neither a data set, a recipe nor a recipe file."""
    from elfnet.data.build import SOURCES

    known = {*SOURCES.names(), *recipe_names(), *(recipe.partition("/")[0] for recipe in recipe_names())}
    return name not in known and not name.endswith(".toml") and Path(name).expanduser().exists()


def _list(*, as_json: bool) -> int:
    """Print every source with the first line of its docstring."""
    from elfnet.data.build import SOURCES

    summaries = {name: (SOURCES[name].__doc__ or "").splitlines()[0] for name in SOURCES}
    if as_json:
        print_json(summaries)
        return 0
    for name, line in summaries.items():
        console().print(f"{name:<10} {line}", markup=False, soft_wrap=True)
    return 0


def _recipe(name: str, overrides: dict[str, object]) -> Recipe:
    """Load a recipe by name; for a data set, load its shipped recipe."""
    from elfnet.data.build import SOURCES

    if name in SOURCES.names():
        shipped = {"cifar10": "cifar10-lt", "cifar100": "cifar100-lt", "lists": "csv"}.get(name, name)
        return load_recipe(f"{shipped}/ce", overrides)
    bare = {recipe.partition("/")[0] for recipe in recipe_names()}
    if not name.endswith(".toml") and name.partition("/")[0] not in bare:
        near = get_close_matches(name, sorted({*SOURCES.names(), *bare}), n=1, cutoff=0.75)
        hint = f"did you mean {near[0]!r}?" if near else "check the path, or"
        raise RequestError(
            f"{name!r} is neither a path that exists nor a data set; {hint} choose from: {', '.join(SOURCES.names())}"
        )
    return load_recipe(name, overrides)


def _prepare(recipe: Recipe, *, as_json: bool) -> int:
    from elfnet.data.build import read_source

    if recipe.data.cache and "data.image_size" in recipe.train.automatic:
        raise RequestError(
            f"data.cache={recipe.data.cache} holds images of one size, and training chooses the size from the data; "
            "give --data.image_size, here and to train"
        )
    source = read_source(recipe.data)
    splits = {"train": source.train, "calibration": source.calibration, "test": source.test}
    counts = {split: 0 if examples is None else len(examples) for split, examples in splits.items()}
    packed = _pack(recipe) if recipe.data.cache else []
    if as_json:
        print_json({"source": source.name, "classes": len(source.class_names), **counts, "packed": packed})
        return 0
    console().print(
        f"{source.name} is ready: {len(source.class_names)} classes, {counts['train']:,} training images, "
        + (f"{counts['calibration']:,} calibration images, " if counts["calibration"] else "")
        + (f"{counts['test']:,} test images" if counts["test"] else "no test set of its own"),
        markup=False,
    )
    for line in packed:
        console().print(f"packed: {line}", markup=False, soft_wrap=True)
    return 0


def _pack(recipe: Recipe) -> list[str]:
    """Write the packed cache of the three splits of a recipe; return the files."""
    from elfnet.data.build import load_splits
    from elfnet.data.loading.build import image_reader
    from elfnet.data.loading.pack import PackedImages

    splits = load_splits(recipe.data)
    readers = [image_reader(recipe.data, part) for part in (splits.train, splits.calibration, splits.test)]
    return [str(reader.file) for reader in readers if isinstance(reader, PackedImages)]


def _refuse_without_effect(path: Path, overrides: dict[str, object]) -> None:
    """Refuse settings that `describe PATH` does not read, such as data.profile, which is for splits of a recipe."""
    unused = [name for name in overrides if name not in DESCRIBE_PATH_SETTINGS]
    if unused:
        recipe = f"folder --data.root {path}" if path.is_dir() else f"csv --data.train {path}"
        raise RequestError(
            f"--{unused[0]} has no effect on the description of {path}; leave it out, or describe the splits of a "
            f"recipe: elfnet data describe {recipe} ..."
        )


def _describe_path(path: Path, overrides: dict[str, object], *, deep: bool, as_json: bool) -> int:
    from elfnet.data.build import frequency_groups, source_request
    from elfnet.data.check_files import check_files
    from elfnet.data.describe import describe_listing, listings_at
    from elfnet.data.images.transforms import limits_of, workers_of

    _refuse_without_effect(path, overrides)
    data = load_recipe("csv/ce", overrides).data
    listings = listings_at(path, source_request(data), features=data.source == "features")
    groups = frequency_groups(data)
    checked = check_files(listings, limits_of(data), threads=max(workers_of(data), 1)) if deep else None
    return _show_description(describe_listing(listings, groups, checked), as_json=as_json)


def _describe(recipe: Recipe, *, as_json: bool) -> int:
    from elfnet.data.build import frequency_groups, load_splits
    from elfnet.data.describe import describe_splits

    facts = describe_splits(load_splits(recipe.data), frequency_groups(recipe.data))
    return _show_description(facts, as_json=as_json)


def _show_description(facts: dict[str, Any], *, as_json: bool) -> int:
    if as_json:
        print_json(facts)
    else:
        console().print(render_description(facts))
    return 0


Facts = Mapping[str, Any]

MAX_CLASSES_BY_NAME = 60
MAX_LISTED = 10  # entries of a list that are printed
_CURVE_LINES = 40
_GROUP_STYLES = {"many": "green", "medium": "yellow", "few": "red"}
_BLOCKS = " ▏▎▍▌▋▊▉█"  # eighths of a character


def render_description(facts: Facts) -> RenderableType:
    """Render a description for a terminal.

    Args:
        facts: The result of `describe_splits` or `describe_listing` of `elfnet.data.describe`.
    """
    # Text and not str: a class may be called "[bold]", and class names are not markup.
    return Group(Text("\n".join(_summary_lines(facts))), Text(""), count_chart(facts["per_class"]))


def _summary_lines(facts: Facts) -> list[str]:
    shape = f", {' x '.join(map(str, facts['image_shape']))} images" if "image_shape" in facts else ""
    lines = [
        f"{facts['source']}: {facts['classes']:,} classes{shape}",
        "examples: " + ", ".join(f"{count:,} {split}" for split, count in facts["examples"].items()),
        f"imbalance ratio: {facts['imbalance_ratio']:.4g}  "
        f"(largest class {facts['largest_class']:,}, smallest {facts['smallest_class']:,})",
        "groups: "
        + ", ".join(f"{name} {_group_size(group)}" for name, group in facts["groups"].items())
        + f"  ({facts['group_rule']} training examples)",
    ]
    if kept := facts.get("after_hold_out"):
        lines.append("after hold-out by 'elfnet train': " + ", ".join(f"{n:,} {split}" for split, n in kept.items()))
    if ignored := facts.get("ignored"):
        from elfnet.data.sources.folder import ignored_line

        lines.append(ignored_line(ignored))
    if missing := facts.get("missing_from_calibration"):
        names = [facts["per_class"][label]["name"] for label in missing[:MAX_LISTED]]
        shown = ", ".join(names) + (" ..." if len(missing) > MAX_LISTED else "")
        classes = "1 class" if len(missing) == 1 else f"{len(missing)} classes"
        lines.append(f"without calibration examples: {classes} ({shown})")
    empty = [split for split, examples in facts.get("after_hold_out", {}).items() if not examples]
    if empty:
        left_out = " and the ".join(empty)
        lines.append(f"too few: 'elfnet train' refuses data with no example for the {left_out} split; add examples")
    elif facts.get("cross_fitting"):
        lines.append("few calibration images: 'elfnet train' uses cross-fitting instead, if the time allows it")
    for split, column in facts.get("group_column", {}).items():
        lines.append(f"{split}: {column['groups']:,} groups that stay together, the largest of {column['largest']:,}")
    return lines + (_file_lines(facts["files"]) if "files" in facts else [])


def _group_size(group: Mapping[str, int]) -> str:
    return f"{group['classes']} classes / {group['examples']:,} examples" if group["classes"] else "-"


def _file_lines(files: Facts) -> list[str]:
    """The result of `--deep` in words; long lists are cut."""
    shorter, longer = (" / ".join(map(str, files[side].values())) for side in ("shorter_side", "longer_side"))
    across, conflicting = files["duplicates_across_splits"], files["duplicates_of_different_classes"]
    return [
        f"files: {files['files']:,}, {files['megabytes']:,.1f} MB; smallest / median / largest shorter side {shorter}, "
        f"longer side {longer} pixels",
        f"unreadable: {len(files['unreadable']):,}",
        *_listed(files["unreadable"]),
        f"same content in two splits: {len(across):,}",
        *_listed([f"{one} = {other}" for one, other in across]),
        f"same content within a split: {files['duplicates_within_splits']:,}; with different classes: "
        f"{len(conflicting):,}",
        *_listed([f"{one} = {other}" for one, other in conflicting]),
    ]


def _listed(entries: Sequence[str]) -> list[str]:
    more = [f"  ... and {len(entries) - MAX_LISTED:,} more"] if len(entries) > MAX_LISTED else []
    return [f"  {entry}" for entry in entries[:MAX_LISTED]] + more


def count_chart(per_class: Sequence[Facts]) -> Table:
    """Bars of the training counts, coloured by frequency group: one per class, or a curve over the ranks if many.

    Args:
        per_class: `name`, `group` and training count `train` of each class.
    """
    largest = max(one["train"] for one in per_class)
    if len(per_class) <= MAX_CLASSES_BY_NAME:
        table = _empty_chart("class", "train")
        for one in per_class:
            table.add_row(Text(one["name"]), *_count_cells(one["train"], largest, one["group"]))
        return table
    table = _empty_chart("ranks", "mean train")
    ranked = sorted(per_class, key=lambda one: -int(one["train"]))
    end = 0
    for run in np.array_split(np.arange(len(ranked)), _CURVE_LINES):
        start, end = end + 1, end + len(run)
        mean = int(np.rint(np.mean([ranked[rank]["train"] for rank in run])))
        group = ranked[int(run[len(run) // 2])]["group"]
        table.add_row(Text(f"{start}-{end}"), *_count_cells(mean, largest, group))
    return table


def _empty_chart(first: str, count: str) -> Table:
    table = Table(box=None, pad_edge=False, expand=True)
    table.add_column(first, overflow="ellipsis", no_wrap=True, max_width=24)
    table.add_column(count, justify="right", no_wrap=True)
    table.add_column("group", no_wrap=True)
    table.add_column("", ratio=1)
    return table


def _count_cells(count: int, largest: int, group: str) -> tuple[RenderableType, ...]:
    style = _GROUP_STYLES[group]
    return Text(f"{count:,}"), Text(group, style=style), _Bar(count / largest, style)


@dataclass(frozen=True)
class _Bar:
    """A horizontal bar that fills `fraction` of the available width, and at least an eighth of a character."""

    fraction: float
    style: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        eighths = max(round(self.fraction * options.max_width * 8), 1)
        if options.ascii_only:
            bar = "#" * max(round(eighths / 8), 1)
        else:
            bar = "█" * (eighths // 8) + _BLOCKS[eighths % 8].strip()
        yield Segment(bar, Style.parse(self.style))
        yield Segment.line()

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(1, options.max_width)
