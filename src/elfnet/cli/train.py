"""elfnet train"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from elfnet.cli.arguments import Parser, add_recipe_flags, recipe_overrides
from elfnet.cli.output import console, exits_table, points_table, print_json
from elfnet.errors import RequestError
from elfnet.recipe.load import DEFAULT_RECIPE, load_recipe, load_stored_recipe
from elfnet.recipe.schema import Recipe
from elfnet.recipe.stages import SHARED_TRAIN_FIELDS


def parser() -> Parser:
    parser = Parser(
        "train",
        "Train a recipe into a run directory, then evaluate and calibrate it and write its report.\n"
        "A run can be stopped at any moment and gone on with by --resume.",
        usage="[RECIPE] [--from RUN] [--out DIR] [--resume | --overwrite] [--devices N] [--SECTION.FIELD VALUE ...] "
        "[--json]",
        example="elfnet train cifar10-lt/elf-ldam-drw --data.ratio 50 --train.epochs 40 --out runs/elf",
    )
    parser.add_argument(
        "recipe", nargs="?", help=f"a name from 'elfnet recipes ls', or a .toml file (default: {DEFAULT_RECIPE})"
    )
    parser.add_argument(
        "--from",
        dest="source",
        metavar="RUN",
        help="finished run whose classifiers balanced, crt, lws, tau-norm ... refit",
    )
    parser.add_argument("--out", type=Path, help="run directory (default: runs/ and the recipe's name)")
    parser.add_argument("--resume", action="store_true", help="go on with the run in --out, with the recipe it has")
    parser.add_argument("--overwrite", action="store_true", help="replace the run in --out")
    parser.add_argument("--no-report", action="store_true", help="train only")
    parser.add_argument("--devices", type=int, help="processes on this machine, one a GPU, or on CPUs (default: 1)")
    parser.add_argument(
        "--num-nodes", type=int, help="machines; start the command on each, with MASTER_ADDR, MASTER_PORT, NODE_RANK"
    )
    parser.add_argument("--timeout", type=float, help="seconds that processes wait for each other (default: 1800)")
    parser.add_json_flag()
    add_recipe_flags(parser)
    return parser


def run(words: Sequence[str]) -> int:
    asked = parser().parse_strictly(words)
    overrides = recipe_overrides(asked)
    if asked.source is not None:
        if overrides.get("refit.run", asked.source) != asked.source:
            raise RequestError(
                f"--from {asked.source} and --refit.run {overrides['refit.run']} differ; give --from alone"
            )
        overrides["refit.run"] = asked.source
    name = asked.recipe or DEFAULT_RECIPE
    out = asked.out or Path("runs") / Path(name).with_suffix("").as_posix().replace("/", "-")
    recipe = _recipe_to_resume(out, asked.recipe, overrides) if asked.resume else load_recipe(name, overrides)
    _refuse_unused(recipe, overrides)

    # Imported after the request was understood: a wrong flag should not wait for torch.
    from elfnet.calibrate.run import calibrate_run, measure_run
    from elfnet.cli.progress import Watch
    from elfnet.train.distributed import SharedError
    from elfnet.train.launch import DEFAULT_TIMEOUT, Launch, is_first_process
    from elfnet.train.run import train_recipe

    timeout = DEFAULT_TIMEOUT if asked.timeout is None else asked.timeout
    launch = Launch(devices=asked.devices, num_nodes=asked.num_nodes, timeout=timeout)
    how = {"resume": asked.resume, "overwrite": asked.overwrite, "launch": launch}
    if not is_first_process():
        # The first process speaks for all, and does the rest alone.
        try:
            train_recipe(recipe, out, **how)
        except SharedError as error:
            return error.exit_code
        return 0
    with Watch() as watch:
        trained = train_recipe(recipe, out, observer=watch, **how)
    if asked.no_report:
        print_json({"run": str(out)}) if asked.json else console().print(f"run: {out}", markup=False)
        return 0
    device = trained.info()["machine"]["device"]
    results = measure_run(trained, calibrate_run(trained, device=device), device=device)

    from elfnet.report import write_report

    report = write_report([trained])
    if asked.json:
        print_json({"run": str(out), "report": str(report), **results})
        return 0
    screen = console()
    screen.print(points_table(results, all_points=False))
    if len(results["exits"]) > 1:
        screen.print(exits_table(results))
    screen.print(f"run: {out}\nreport: {report}", markup=False)
    return 0


def _refuse_unused(recipe: Recipe, overrides: Mapping[str, object]) -> None:
    """Refuse flags that a second stage on a finished run has no use for: it has a loss and a schedule of its own."""
    if recipe.refit.method != "balanced" or not recipe.refit.run:
        return
    used = {"criterion.cosine_scale", *(f"train.{name}" for name in SHARED_TRAIN_FIELDS)}
    own = {"train.epochs": "refit.epochs", "train.lr": "refit.lr", "train.weight_decay": "refit.weight_decay"}
    for dotted, value in overrides.items():
        if dotted.partition(".")[0] in ("train", "criterion") and dotted not in used:
            instead = f"use --{own[dotted]}" if dotted in own else "leave it out"
            raise RequestError(
                f"--{dotted} {value} has no effect on a second stage (refit.method=balanced) with --from; {instead}"
            )


def _recipe_to_resume(out: Path, name: str | None, overrides: dict[str, object]) -> Recipe:
    """The run's own recipe; if a recipe or settings are given with --resume, they must agree with it."""
    from elfnet.run.directory import RunDirectory

    there = RunDirectory(out)
    if not there.exists():
        raise RequestError(f"there is no run in {out} to resume; leave --resume out to start one")
    begun = there.recipe()
    if name is None and not overrides:
        return begun
    # Which run it started from is no question any more: its weights are in this run's own checkpoint.
    source = {"refit.run": begun.refit.run} if begun.refit.run else {}
    settings = {**overrides, **source}
    return load_stored_recipe(there.recipe_file, settings) if name is None else load_recipe(name, settings)
