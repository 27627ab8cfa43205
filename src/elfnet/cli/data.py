"""elfnet data ls | prepare | describe"""

from collections.abc import Sequence
from pathlib import Path

from elfnet.cli.arguments import Parser, add_recipe_flags, recipe_overrides
from elfnet.cli.output import console, print_json
from elfnet.errors import RequestError
from elfnet.recipe.load import load_recipe, recipe_names
from elfnet.recipe.schema import Recipe
from elfnet.registry import unknown_name

READ_AT_A_PATH = (
    *("data.source", "data.root", "data.calibration", "data.test"),
    *("data.path_column", "data.label_column", "data.group_column"),
    *("data.many_above", "data.few_below"),
    *("data.workers", "data.max_megapixels", "data.max_megabytes"),
)
"""Settings that say how a path is read and told of; all others are about what is made of it."""


def parser() -> Parser:
    parser = Parser(
        "data",
        "ls: the data sets by name. prepare: find, download and check one; with --data.cache also pack its images.\n"
        "describe: class counts, groups and imbalance ratio, drawn in the terminal: of a folder of class folders, a\n"
        "list, a table or an .npz file as it is (--deep also reads the images), or of the training split that a\n"
        "recipe makes.",
        usage="ls | prepare NAME | describe PATH|NAME|RECIPE [--deep] [--SECTION.FIELD VALUE ...] [--json]",
        example="elfnet data describe cifar100-lt/ce --data.ratio 50",
    )
    parser.add_argument("what", choices=("ls", "prepare", "describe"), help="what to do")
    parser.add_argument(
        "name", nargs="?", help="a data set from ls; for describe also a path, a recipe or a .toml file"
    )
    parser.add_argument(
        "--deep", action="store_true", help="describe PATH: read every file; sizes, unreadable ones, duplicates"
    )
    parser.add_json_flag()
    add_recipe_flags(parser)
    return parser


def run(words: Sequence[str]) -> int:
    reader = parser()
    asked = reader.parse_strictly(words)

    from elfnet.data.build import SOURCES

    if asked.what == "ls":
        return _list(as_json=asked.json)
    if asked.name is None:
        reader.error(f"name a data set: {', '.join(SOURCES)}")
    overrides = recipe_overrides(asked)
    is_path = asked.what == "describe" and _is_path(asked.name)
    if asked.deep and not is_path:
        reader.error("--deep reads the files of a folder, a list or a table: give its path to describe")
    if is_path:
        return _describe_path(Path(asked.name).expanduser(), overrides, deep=asked.deep, as_json=asked.json)
    recipe = _recipe(asked.name, overrides)
    return _prepare(recipe, as_json=asked.json) if asked.what == "prepare" else _describe(recipe, as_json=asked.json)


def _is_path(name: str) -> bool:
    """Whether a name means what lies there: no name of ours, no recipe file, and there."""
    from elfnet.data.build import SOURCES

    ours = {*SOURCES.names(), *recipe_names(), *(recipe.partition("/")[0] for recipe in recipe_names())}
    return name not in ours and not name.endswith(".toml") and Path(name).expanduser().exists()


def _list(*, as_json: bool) -> int:
    """Every source with the first line of what its builder says of it."""
    from elfnet.data.build import SOURCES

    what = {name: (SOURCES[name].__doc__ or "").splitlines()[0] for name in SOURCES}
    if as_json:
        print_json(what)
        return 0
    for name, line in what.items():
        console().print(f"{name:<10} {line}", markup=False, soft_wrap=True)
    return 0


def _recipe(name: str, overrides: dict[str, object]) -> Recipe:
    """A recipe as named; for the bare name of a data set, the recipe that ships for it."""
    from elfnet.data.build import SOURCES

    if name in SOURCES.names():
        shipped = {"cifar10": "cifar10-lt", "cifar100": "cifar100-lt", "lists": "csv"}.get(name, name)
        return load_recipe(f"{shipped}/ce", overrides)
    bare = {recipe.partition("/")[0] for recipe in recipe_names()}
    if "/" not in name and not name.endswith(".toml") and name not in bare:
        raise unknown_name("data source", name, [*SOURCES.names(), "or the path of a folder, list or table"])
    return load_recipe(name, overrides)


def _prepare(recipe: Recipe, *, as_json: bool) -> int:
    from elfnet.data.build import source_of

    source = source_of(recipe.data)
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
    """Pack the three splits that the recipe makes, so that training finds them."""
    from elfnet.data.build import load_splits
    from elfnet.data.loading.build import image_reader
    from elfnet.data.loading.pack import PackedImages

    splits = load_splits(recipe.data)
    readers = [image_reader(recipe.data, part) for part in (splits.train, splits.calibration, splits.test)]
    return [str(reader.file) for reader in readers if isinstance(reader, PackedImages)]


def _refuse_without_effect(path: Path, overrides: dict[str, object]) -> None:
    """What is at a path is described as it is; a profile, say, belongs to the splits that a recipe makes of it."""
    unused = [name for name in overrides if name not in READ_AT_A_PATH]
    if unused:
        recipe = f"folder --data.root {path}" if path.is_dir() else f"csv --data.train {path}"
        raise RequestError(
            f"--{unused[0]} has no effect on what is at {path}; leave it out, or describe what a recipe makes of it: "
            f"elfnet data describe {recipe} ..."
        )


def _describe_path(path: Path, overrides: dict[str, object], *, deep: bool, as_json: bool) -> int:
    from elfnet.data.build import frequency_groups, request_of
    from elfnet.data.check_files import check_files
    from elfnet.data.describe import describe_listing, listings_at, render_listing
    from elfnet.data.images.transforms import limits_of, workers_of

    _refuse_without_effect(path, overrides)
    data = load_recipe("csv/ce", overrides).data
    listings = listings_at(path, request_of(data), features=data.source == "features")
    groups = frequency_groups(data)
    checked = check_files(listings, limits_of(data), threads=max(workers_of(data), 1)) if deep else None
    if as_json:
        print_json(describe_listing(listings, groups, checked))
    else:
        console().print(render_listing(listings, groups, checked))
    return 0


def _describe(recipe: Recipe, *, as_json: bool) -> int:
    from elfnet.data.build import frequency_groups, load_splits
    from elfnet.data.describe import describe, render

    splits, groups = load_splits(recipe.data), frequency_groups(recipe.data)
    if as_json:
        print_json(describe(splits, groups))
    else:
        console().print(render(splits, groups))
    return 0
