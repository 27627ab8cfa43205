"""The command `elfnet train`: train a recipe, evaluate and calibrate the run, and write its report."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from elfnet.cli.arguments import Parser, add_recipe_flags, recipe_overrides
from elfnet.cli.output import console, exits_table, percent, points_table, print_json
from elfnet.errors import RequestError
from elfnet.recipe.load import DEFAULT_RECIPE, load_recipe, load_stored_recipe
from elfnet.recipe.schema import Recipe
from elfnet.recipe.stages import SHARED_TRAIN_FIELDS
from elfnet.run.log import resume_command

if TYPE_CHECKING:
    from elfnet.calibrate.measured_cost import MeasuredCost
    from elfnet.run.directory import RunDirectory


def parser() -> Parser:
    """The arguments of the command."""
    parser = Parser(
        "train",
        "Train a recipe into a run directory, then evaluate and calibrate it and write its report.\n"
        "A run can be stopped at any time; --resume continues it.",
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
        help="finished run to start from, for recipes that refit classifiers (balanced, crt, lws, tau-norm ...)",
    )
    parser.add_argument("--out", type=Path, help="run directory (default: runs/ followed by the name of the recipe)")
    parser.add_argument("--resume", action="store_true", help="continue the run in --out with its own recipe")
    parser.add_argument("--overwrite", action="store_true", help="replace the run in --out")
    parser.add_argument("--no-report", action="store_true", help="train only; no evaluation, calibration or report")
    parser.add_argument("--devices", type=int, help="processes on this machine, one per GPU, or on CPUs (default: 1)")
    parser.add_argument(
        "--num-nodes",
        type=int,
        help="number of machines; start the command on each, with MASTER_ADDR, MASTER_PORT, NODE_RANK",
    )
    parser.add_argument("--timeout", type=float, help="seconds that processes wait for each other (default: 1800)")
    parser.add_json_flag()
    add_recipe_flags(parser)
    return parser


def run(words: Sequence[str]) -> int:
    """Run the command; returns its exit code."""
    args = parser().parse_strictly(words)
    overrides = recipe_overrides(args)
    if args.source is not None:
        if overrides.get("refit.run", args.source) != args.source:
            raise RequestError(
                f"--from {args.source} and --refit.run {overrides['refit.run']} differ; give --from alone"
            )
        overrides["refit.run"] = args.source
    name = args.recipe or DEFAULT_RECIPE
    out = args.out or Path("runs") / Path(name).with_suffix("").as_posix().replace("/", "-")
    recipe = _recipe_to_resume(out, args.recipe, overrides) if args.resume else load_recipe(name, overrides)
    _refuse_unused(recipe, overrides)

    # Imported after the arguments are checked: a wrong flag should not wait for torch.
    from elfnet.train.distributed import SharedError
    from elfnet.train.launch import DEFAULT_TIMEOUT, Launch, is_first_process
    from elfnet.train.logging import Watch
    from elfnet.train.run import train_recipe

    timeout = DEFAULT_TIMEOUT if args.timeout is None else args.timeout
    launch = Launch(devices=args.devices, num_nodes=args.num_nodes, timeout=timeout)
    how = {"resume": args.resume, "overwrite": args.overwrite, "launch": launch}
    if not is_first_process():
        # Rank 0 reports to the user, and does the rest alone.
        try:
            train_recipe(recipe, out, **how)
        except SharedError as error:
            return error.exit_code
        return 0
    try:
        with Watch() as watch:
            trained = train_recipe(recipe, out, observer=watch, **how)
        if args.no_report:
            print_json({"run": str(out)}) if args.json else console().print(f"run: {out}", markup=False)
        else:
            _finish(trained, as_json=args.json)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"finished epochs are saved; resume with: {resume_command(out)}") from None
    return 0


def _finish(trained: "RunDirectory", *, as_json: bool) -> None:
    """Calibrate and measure a trained run, write its report and model card, and print the results."""
    from elfnet.calibrate.run import calibrate_run, measure_run
    from elfnet.report import write_model_card, write_report
    from elfnet.report.record import read_run
    from elfnet.train.epoch_statistics import best_test_epoch

    device = trained.info().machine.device
    times, untimed = _times(trained)
    family = calibrate_run(trained, times=times, device=device)
    results = measure_run(trained, family, device=device)
    report, card = write_report([trained]), write_model_card(trained)
    best = best_test_epoch(trained.log())
    if as_json:
        chosen_on_test = {"best_test_epoch": best} if best else {}
        print_json({"run": str(trained.root), "report": str(report), **results.to_json(), **chosen_on_test})
        return
    screen = console()
    record = read_run(trained)
    leading = ("accurate", *record.leading_points())
    screen.print(points_table(results, all_points=False, only=leading, milliseconds=record.all_milliseconds()))
    for note in (*family.notes, *untimed, *([record.mix_note] if record.mix_note else [])):
        screen.print(note, markup=False, soft_wrap=True)
    if len(results.exits) > 1:
        screen.print(exits_table(results))
    if best:
        screen.print(
            f"best test epoch: {percent(best['accuracy'])} % after epoch {best['epoch'] + 1}, selected on test; the "
            "points above are of the last epoch",
            markup=False,
        )
    screen.print(f"run: {trained.root}\nreport: {report}\nmodel card: {card}", markup=False)


def _times(run: "RunDirectory") -> "tuple[MeasuredCost | None, tuple[str, ...]]":
    """Return the time of the stages on this machine, or a note that says why it is not measured."""
    from elfnet.export.read_run import times_of_run

    try:
        return times_of_run(run), ()
    except RequestError as error:
        return None, (f"times per image were not measured: {error}",)


def _refuse_unused(recipe: Recipe, overrides: Mapping[str, object]) -> None:
    """Refuse flags without effect: a second stage on a finished run has its own loss and schedule."""
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
    """The recipe of the run to resume, or the given recipe and settings, which must agree with it (checked later)."""
    from elfnet.run.directory import RunDirectory

    stored = RunDirectory(out)
    if not stored.exists():
        raise RequestError(f"there is no run in {out} to resume; leave --resume out to start one")
    recipe = stored.recipe()
    if name is None and not overrides:
        return recipe
    # The source run is not needed any more: its weights are in the checkpoint of this run.
    source = {"refit.run": recipe.refit.run} if recipe.refit.run else {}
    settings = {**overrides, **source}
    return load_stored_recipe(stored.recipe_file, settings) if name is None else load_recipe(name, settings)
