"""elfnet data ls | prepare | describe"""

from collections.abc import Sequence

from elfnet.cli.arguments import Parser, add_recipe_flags, recipe_overrides
from elfnet.cli.show import console, print_json
from elfnet.recipe.load import load_recipe
from elfnet.recipe.schema import Recipe


def parser() -> Parser:
    parser = Parser(
        "data",
        "ls: the data sets by name. prepare: find, download and check one. describe: class counts, groups and\n"
        "imbalance ratio of the training split that a recipe makes of it, drawn in the terminal.",
        usage="ls | prepare NAME | describe NAME|RECIPE [--SECTION.FIELD VALUE ...] [--json]",
        example="elfnet data describe cifar100-lt/ce --data.ratio 50",
    )
    parser.add_argument("what", choices=("ls", "prepare", "describe"), help="what to do")
    parser.add_argument("name", nargs="?", help="a data set from ls; for describe also a recipe or a .toml file")
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
    recipe = _recipe(asked.name, recipe_overrides(asked))
    return _prepare(recipe, as_json=asked.json) if asked.what == "prepare" else _describe(recipe, as_json=asked.json)


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
        shipped = {"digits": "digits/ce"}.get(name, f"{name}-lt/ce")
        return load_recipe(shipped, overrides)
    if "/" not in name and not name.endswith(".toml"):
        _ = SOURCES[name]  # raises with the choices
    return load_recipe(name, overrides)


def _prepare(recipe: Recipe, *, as_json: bool) -> int:
    from pathlib import Path

    from elfnet.data.build import load_source

    directory = Path(recipe.data.directory) if recipe.data.directory else None
    source = load_source(recipe.data.source, directory)
    test = len(source.test) if source.test is not None else 0
    if as_json:
        facts = {"source": source.name, "classes": len(source.class_names), "train": len(source.train), "test": test}
        print_json(facts)
    else:
        console().print(
            f"{source.name} is ready: {len(source.class_names)} classes, {len(source.train):,} training images, "
            + (f"{test:,} test images" if test else "no test set of its own"),
            markup=False,
        )
    return 0


def _describe(recipe: Recipe, *, as_json: bool) -> int:
    from elfnet.data.describe import describe, render
    from elfnet.data.from_recipe import frequency_groups, load_splits

    splits, groups = load_splits(recipe.data), frequency_groups(recipe.data)
    if as_json:
        print_json(describe(splits, groups))
    else:
        console().print(render(splits, groups))
    return 0
