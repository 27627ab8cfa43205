"""The command `elfnet evaluate`: accuracy and cost of a run's operating points, or a comparison of two runs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from elfnet.cli.arguments import Parser, positive
from elfnet.cli.output import console, exits_table, percent, points_table, print_json

if TYPE_CHECKING:
    from elfnet.evaluate.exit_table import ExitTable
    from elfnet.run.directory import RunDirectory
    from elfnet.run.results import Results


def parser() -> Parser:
    """The arguments of the command."""
    parser = Parser(
        "evaluate",
        "Accuracy by class-frequency group against cost, from one pass over a split (stored and reused).\n"
        "Without --threshold: the operating points of the run's policy.json, or full depth if it has none.",
        usage="RUN [--split SPLIT] [--threshold S ...] [--against RUN] [--json]",
        example="elfnet evaluate runs/elf --threshold 0.7 --threshold 0.9 --per-class",
    )
    parser.add_argument("run", help="a run directory")
    parser.add_argument("--split", default="test", help="test, calibration or train (default: test)")
    parser.add_argument(
        "--checkpoint",
        choices=("last", "best", "first-stage"),
        help="which weights (default: those of the operating points, else last)",
    )
    parser.add_argument(
        "--threshold", action="append", metavar="S", help="s of eq. 5: a number or a multiple of 1/C; may be repeated"
    )
    parser.add_argument("--scale", type=positive, help="multiply logits by this before eq. 5 (default: the recipe's)")
    parser.add_argument(
        "--many-above", type=int, metavar="N", help="classes with more images are 'many' (default: the recipe's)"
    )
    parser.add_argument(
        "--few-below", type=int, metavar="N", help="classes with fewer images are 'few' (default: the recipe's)"
    )
    parser.add_argument(
        "--group-accuracy",
        choices=("images", "classes"),
        default="images",
        help="accuracy of many, medium and few at operating points: over the images of a group, or the mean over its "
        "classes, as in much published code; equal on a balanced test set (default: images)",
    )
    parser.add_argument("--per-class", action="store_true", help="also show the accuracy per class")
    parser.add_argument("--against", metavar="RUN", help="compare with this run at full depth, by a paired bootstrap")
    parser.add_argument(
        "--fresh-statistics", action="store_true", help="first estimate batch-norm statistics again (after 'drop')"
    )
    parser.add_argument("--again", action="store_true", help="run the network even if the exit table exists")
    parser.add_json_flag()
    parser.add_device_flag()
    return parser


def run(words: Sequence[str]) -> int:
    """Run the command; returns its exit code."""
    args = parser().parse_strictly(words)

    from elfnet.evaluate.run import evaluate_run
    from elfnet.run.directory import open_run
    from elfnet.train.machine import choose_device

    device = choose_device(args.device)
    directory = open_run(args.run)

    def measured(run: "RunDirectory") -> "ExitTable":
        """The exit table of a run with the given flags; both runs of a comparison use the same flags."""
        table = evaluate_run(
            run,
            args.split,
            checkpoint=args.checkpoint or _checkpoint_of_points(run),
            device=device,
            again=args.again,
            fresh_statistics=args.fresh_statistics,
        )
        return _with_boundaries(table, args.many_above, args.few_below)

    other_directory = open_run(args.against) if args.against else None
    table = measured(directory)
    if other_directory is not None:
        first, second = (
            _as_calibrated(run, found)
            for run, found in ((directory, table), (other_directory, measured(other_directory)))
        )
        return _compare(args.run, first, args.against, second, as_json=args.json)

    from elfnet.calibrate.point_family import Family
    from elfnet.calibrate.run import results_on

    other_weights = args.checkpoint not in (None, _checkpoint_of_points(directory)) or args.fresh_statistics
    if args.threshold or args.scale is not None or other_weights or not directory.policy_file.is_file():
        family = _fixed_family(table, args.threshold or [], args.scale)
    else:
        family = Family.open(directory.policy_file, checkpoint_sha256=table.checkpoint_sha256)
    results = results_on(table, family)
    if args.group_accuracy == "classes":
        from elfnet.evaluate.metrics import class_mean_by_group

        points = {
            name: point.model_copy(
                update={"accuracy_by_group": class_mean_by_group(point.accuracy_by_class, table.group_of_class)}
            )
            for name, point in results.points.items()
        }
        results = results.model_copy(update={"points": points, "group_accuracy": "mean over classes"})
    if args.json:
        print_json(results.to_json())
        return 0
    screen = console()
    screen.print(points_table(results))
    if len(results.exits) > 1:
        screen.print(exits_table(results))
    if args.per_class:
        screen.print(_per_class(table, results))
    return 0


def _checkpoint_of_points(run: "RunDirectory") -> str:
    """The checkpoint that the operating points of a run belong to; `last` if it has none."""
    from elfnet.calibrate.point_family import Family

    return Family.open(run.policy_file).checkpoint if run.policy_file.is_file() else "last"


def _as_calibrated(run: "RunDirectory", table: "ExitTable") -> "ExitTable":
    """The table with the logit adjustment of the run's policy, if the policy belongs to these weights."""
    from dataclasses import replace

    from elfnet.calibrate.point_family import Family

    if not run.policy_file.is_file():
        return table
    family = Family.open(run.policy_file)
    return (
        replace(table, adjustment=family.adjustment) if family.checkpoint_sha256 == table.checkpoint_sha256 else table
    )


def _with_boundaries(table: "ExitTable", many_above: int | None, few_below: int | None) -> "ExitTable":
    """The table with other boundaries of frequency groups; None keeps a boundary."""
    from dataclasses import replace

    return replace(
        table,
        many_above=table.many_above if many_above is None else many_above,
        few_below=table.few_below if few_below is None else few_below,
    )


def _fixed_family(table: Any, thresholds: list[str], scale: float | None) -> Any:
    """Operating points of the command line. Nothing is chosen by data, so any split may be used."""
    from elfnet.calibrate.line_search import fixed_points

    return fixed_points(table, thresholds, confidence_scale=scale)


def _per_class(table: Any, results: "Results") -> Any:
    """A terminal table of the accuracy per class."""
    from rich.markup import escape
    from rich.table import Table

    shown = Table(title="By class, most frequent first", caption="accuracy in %")
    shown.add_column("class")
    shown.add_column("training images", justify="right")
    for name in results.points:
        shown.add_column(escape(name), justify="right")
    for label in (-table.class_counts_C).argsort(kind="stable"):
        cells = (percent(point.accuracy_by_class[label]) for point in results.points.values())
        shown.add_row(escape(table.class_names[label]), f"{table.class_counts_C[label]:,}", *cells)
    return shown


def _compare(first_name: str, first: Any, second_name: str, second: Any, *, as_json: bool) -> int:
    """Print the differences in accuracy between two runs at full depth."""
    from rich.markup import escape
    from rich.table import Table

    from elfnet.evaluate.bootstrap import paired_bootstrap
    from elfnet.evaluate.policy_replay import compute_confidences, replay
    from elfnet.exits.policy import NEVER

    # The bootstrap computes second minus first; the run of interest is the first on the command line.
    sides = [
        (d.table, replay(d, d.uniform("full", NEVER)))
        for d in (compute_confidences(second), compute_confidences(first))
    ]
    comparison = paired_bootstrap(sides[0], sides[1])
    if as_json:
        print_json({"run": first_name, "against": second_name, **comparison.to_dict()})
        return 0
    shown = Table(
        title=f"{escape(first_name)} minus {escape(second_name)}, full depth, {comparison.n:,} {first.split} images",
        caption=f"points of accuracy; 95 % interval of a paired bootstrap, {comparison.resamples:,} resamples",
    )
    for name in ("", "difference", "from", "to", "n"):
        shown.add_column(name, justify="right" if name else "left")
    for name, difference in comparison.differences.items():
        if difference is None:
            shown.add_row(name, *["–"] * 4)
        else:
            figures = (f"{100 * value:+.1f}" for value in (difference.estimate, difference.low, difference.high))
            shown.add_row(name, *figures, f"{difference.n:,}")
    console().print(shown)
    return 0
