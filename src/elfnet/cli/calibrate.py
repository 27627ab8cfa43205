"""The command `elfnet calibrate`: fit operating points on the calibration split and measure them on the test split."""

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from elfnet.cli.arguments import Parser, budgets, numbers, positive
from elfnet.cli.output import console, points_table, print_json

if TYPE_CHECKING:
    from elfnet.calibrate.family_request import FamilyRequest
    from elfnet.run.directory import RunDirectory


def parser() -> Parser:
    parser = Parser(
        "calibrate",
        "Fit operating points on the calibration split (never on the test split) and write policy.json. Then measure\n"
        "each point once on the test split and write metrics.json. The points are: the paper's line search for one\n"
        "threshold s; the best thresholds per exit for each budget and accuracy floor; points with a guarantee on the\n"
        "accuracy lost (risk control); and MSDNet's geometric rule as a baseline.",
        usage="RUN [--budgets B,B,...] [--mix MIX] [--epsilon E,E,...] [--cost FILE] [--all] [--json]",
        example="elfnet calibrate runs/elf --budgets 0.4,0.6,0.8 --epsilon 0.01 --delta 0.05",
    )
    parser.add_argument("run", help="run directory")
    parser.add_argument("--search", metavar="S,S,...", help="candidates for s (default: exits.search of the recipe)")
    parser.add_argument(
        "--scale", type=positive, help="factor of the logits in the line search (default: that of the recipe)"
    )
    parser.add_argument(
        "--tolerance",
        type=float,
        default=1.0,
        help="largest accuracy loss of the point 'economic', in percentage points (default: 1.0)",
    )
    parser.add_argument(
        "--budgets",
        type=budgets,
        metavar="B,B,...",
        help="mean costs to fit thresholds for (default: steps of 0.05), or times: 5ms is the mean time per image on "
        "this machine, one image at a time",
    )
    parser.add_argument(
        "--floors",
        type=numbers,
        metavar="P,P,...",
        default=(0.5, 1.0),
        help="accuracy losses, in percentage points, to find the cheapest points for: one point for the loss over all "
        "images and one for the worst frequency group (default: 0.5,1)",
    )
    parser.add_argument(
        "--scales",
        choices=("auto", "own", "fitted"),
        default="auto",
        help="confidence scale of each exit: own (that of the recipe), fitted, or auto (the better one by "
        "cross-validation; default)",
    )
    parser.add_argument(
        "--combine",
        choices=("auto", "on", "off"),
        default="auto",
        help="average the logits of all exits so far; auto: if this is better by cross-validation (default: auto)",
    )
    parser.add_argument(
        "--logit-adjustment",
        choices=("auto", "on", "off"),
        help="subtract tau * log prior from the logits of each exit, with fitted tau; auto: if the balanced accuracy "
        "improves by more than two standard errors (default: exits.logit_adjustment of the recipe)",
    )
    parser.add_argument(
        "--classifiers",
        choices=("auto", "first-stage", "second-stage"),
        default="auto",
        help="of a run with a second stage: second-stage, its balanced classifiers; first-stage, those from before it "
        "with adjusted logits; auto: the second stage, unless the others have a better balanced accuracy by more than "
        "two standard errors and logits may be adjusted (default: auto)",
    )
    parser.add_argument(
        "--mix",
        metavar="MIX",
        help="class mix to choose points for: balanced, as-is, or the expected images per class, such as 100,20,5 "
        "(default: exits.class_mix of the recipe)",
    )
    _add_risk_flags(parser)
    parser.add_argument(
        "--cost",
        type=Path,
        metavar="FILE",
        help="use measured times as cost; the file is written by 'elfnet bench inference RUN --costs FILE'",
    )
    parser.add_argument("--all", action="store_true", help="also print the points of the baselines")
    parser.add_json_flag()
    parser.add_device_flag()
    return parser


def _add_risk_flags(parser: Parser) -> None:
    group = parser.add_argument_group("risk control", "points whose accuracy loss is bounded with a given probability")
    group.add_argument(
        "--epsilon",
        type=numbers,
        metavar="E,E,...",
        help="largest loss against full depth; 0.01 is one percentage point (default: those of 0.01,0.02,0.05 that the "
        "number of examples allows)",
    )
    group.add_argument(
        "--delta", type=float, default=0.05, help="probability that a guarantee is broken (default: 0.05)"
    )
    group.add_argument(
        "--simultaneous", action="store_true", help="delta holds for all guarantees together, not for each"
    )
    group.add_argument(
        "--risk-loss",
        choices=("accuracy", "agreement"),
        default="accuracy",
        help="accuracy: accuracy lost; agreement: share of predictions that differ from full depth, which needs no "
        "labels (default: accuracy)",
    )
    group.add_argument(
        "--risk-groups",
        choices=("none", "true", "predicted"),
        default="none",
        help="guarantee the loss in every frequency group, by true or by predicted class (default: none)",
    )
    group.add_argument(
        "--risk-method",
        choices=("betting", "hoeffding-bentkus"),
        default="betting",
        help="statistical test (default: betting, the tighter one)",
    )
    group.add_argument(
        "--risk-procedure",
        choices=("fixed-sequence", "upper-bound"),
        default="fixed-sequence",
        help="report a p-value or a bound on the loss (default: fixed-sequence)",
    )


def run(words: Sequence[str]) -> int:
    args = parser().parse_strictly(words)

    from elfnet.calibrate.measured_cost import MeasuredCost, TimeBudget
    from elfnet.calibrate.run import calibrate_run, measure_run
    from elfnet.report import write_model_card
    from elfnet.run.directory import open_run
    from elfnet.train.machine import choose_device

    directory = open_run(args.run)
    device = choose_device(args.device)
    cost = MeasuredCost.open(args.cost) if args.cost else None
    times = None
    if cost is None and any(isinstance(budget, TimeBudget) for budget in args.budgets or ()):
        from elfnet.export.read_run import times_of_run

        times = times_of_run(directory)
    with directory.lock():
        family = calibrate_run(directory, _request(args, directory), cost=cost, times=times, device=device)
        results = measure_run(directory, family, device=device)
        card = write_model_card(directory)
    if args.json:
        print_json({"family": family.to_dict(), "test": results.to_json()})
        return 0
    from elfnet.report.record import read_run

    screen = console()
    record = read_run(directory)
    screen.print(points_table(results, all_points=args.all, milliseconds=record.all_milliseconds()))
    for note in (*family.notes, *([record.mix_note] if record.mix_note else [])):
        screen.print(note, markup=False)
    for point in family.points:
        if point.promise:
            screen.print(_guarantee_line(point.name, point.promise), markup=False)
    how = "measured" if family.split == "train" else "fitted"
    screen.print(f"{how} on the {family.chosen_on}; wrote {directory.policy_file} and {card}", markup=False)
    if directory.report_file.is_file():
        again = f"elfnet report {shlex.quote(str(directory.root))}"
        screen.print(f"{directory.report_file} shows the former points; write it anew with: {again}", markup=False)
    return 0


def _request(args: argparse.Namespace, directory: "RunDirectory") -> "FamilyRequest":
    from elfnet.calibrate.class_mix import parse_mix
    from elfnet.calibrate.family_request import DEFAULT_EPSILONS, FamilyRequest, RiskPoints, adjust_from_recipe

    recipe = directory.recipe()
    return FamilyRequest(
        search=args.search.split(",") if args.search else recipe.exits.search,
        tolerance_points=args.tolerance,
        confidence_scale=args.scale,
        budgets=args.budgets,
        floors_points=args.floors,
        mix=parse_mix(args.mix or recipe.exits.class_mix),
        scales=args.scales,
        combine=args.combine,
        adjust=adjust_from_recipe(recipe, args.logit_adjustment),
        classifiers=args.classifiers,
        risk=RiskPoints(
            epsilons=DEFAULT_EPSILONS if args.epsilon is None else args.epsilon,
            delta=args.delta,
            simultaneous=args.simultaneous,
            method=args.risk_method,
            procedure=args.risk_procedure,
            loss=args.risk_loss,
            groups=args.risk_groups,
            required=args.epsilon is not None,
        ),
    )


def _guarantee_line(name: str, promise: dict[str, object]) -> str:
    scope = "all guarantees together" if promise["simultaneous"] else "each guarantee separately"
    where = "" if promise["groups"] == "none" else f", in every frequency group by {promise['groups']} class"
    what = "accuracy lost" if promise["loss"] == "accuracy" else "predictions that differ from full depth"
    return (
        f"{name}: {what} at most {promise['epsilon']:g} with probability {1 - float(str(promise['delta'])):g}"
        f"{where} ({scope}); certified on {promise['n_certified']} images, cost saved "
        f"{100 * float(str(promise['cost_saved'])):.1f} %"
    )
