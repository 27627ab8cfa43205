"""The command `elfnet recipes ls | show`."""

from collections.abc import Sequence

from elfnet.cli.arguments import Parser, add_recipe_flags, recipe_overrides
from elfnet.cli.output import console, print_json
from elfnet.recipe.load import load_recipe, recipe_names, recipe_summary, recipe_text


def parser() -> Parser:
    """The arguments of the command."""
    parser = Parser(
        "recipes",
        "List the shipped recipes, or show all settings of one.",
        usage="ls | show RECIPE [--SECTION.FIELD VALUE ...] [--json]",
        example="elfnet recipes show cifar10-lt/elf-ldam-drw --train.epochs 40",
    )
    parser.add_argument(
        "what", choices=("ls", "show"), help="ls: list the shipped recipes; show: print all settings of one"
    )
    parser.add_argument("recipe", nargs="?", help="for show: name of a shipped recipe, or a .toml file")
    parser.add_json_flag()
    add_recipe_flags(parser)
    return parser


def run(words: Sequence[str]) -> int:
    """Run the command with these arguments; return the exit code."""
    reader = parser()
    args = reader.parse_strictly(words)
    if args.what == "ls":
        reader.refuse_name(args.recipe)
        return _list(as_json=args.json)
    if args.recipe is None:
        reader.error("name the recipe to show; elfnet recipes ls lists them")
    recipe = load_recipe(args.recipe, recipe_overrides(args))
    if args.json:
        print_json(recipe.model_dump(mode="json"))
    else:
        console().print(recipe_text(recipe), markup=False, soft_wrap=True)
    return 0


def _list(*, as_json: bool) -> int:
    summaries = {name: recipe_summary(name) for name in recipe_names()}
    if as_json:
        print_json(summaries)
        return 0
    width = max(map(len, summaries))
    for name, summary in summaries.items():
        console().print(f"{name:<{width}}  {summary}", markup=False, soft_wrap=True)
    return 0
