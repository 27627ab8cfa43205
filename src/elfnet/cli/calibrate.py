"""elfnet calibrate"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from elfnet.cli.arguments import Parser, numbers, positive
from elfnet.cli.output import console, points_table, print_json
from elfnet.errors import RequestError, WorkError

if TYPE_CHECKING:
    from elfnet.calibrate.fit import FamilyRequest
    from elfnet.calibrate.measured_cost import MeasuredCost
    from elfnet.run.directory import RunDirectory


def parser() -> Parser:
    parser = Parser(
        "calibrate",
        "Find operating points on the calibration split (never on the test split), write policy.json, then measure\n"
        "each of them once on the test split and write metrics.json: the paper's line search for one threshold s,\n"
        "the best thresholds per exit for each budget and accuracy floor, points with a promise on the accuracy lost\n"
        "(risk control), and MSDNet's geometric rule as a baseline.",
        usage="RUN [--budgets B,B,...] [--epsilon E,E,...] [--cost FILE] [--all] [--json]",
        example="elfnet calibrate runs/elf --budgets 0.4,0.6,0.8 --epsilon 0.01 --delta 0.05",
    )
    parser.add_argument("run", help="a run directory")
    parser.add_argument("--search", metavar="S,S,...", help="candidates for s (default: the recipe's)")
    parser.add_argument(
        "--scale", type=positive, help="of the line search: multiply logits by this (default: the recipe's)"
    )
    parser.add_argument(
        "--tolerance", type=float, default=1.0, help="points of accuracy that 'economic' may give up (default: 1.0)"
    )
    parser.add_argument(
        "--budgets", type=numbers, metavar="B,B,...", help="mean costs to fit thresholds for (default: steps of 0.05)"
    )
    parser.add_argument(
        "--floors",
        type=numbers,
        metavar="P,P,...",
        default=(0.5, 1.0),
        help="cheapest points that lose at most P points of accuracy, overall and in the worst group (default: 0.5,1)",
    )
    parser.add_argument(
        "--scales",
        choices=("auto", "own", "fitted"),
        default="auto",
        help="confidence scale of each exit: the recipe's, fitted, or what cross-validates better (default: auto)",
    )
    parser.add_argument(
        "--combine",
        choices=("auto", "on", "off"),
        default="auto",
        help="decide from all exits seen so far together; auto: if it cross-validates better (default: auto)",
    )
    parser.add_argument(
        "--logit-adjustment",
        choices=("auto", "on", "off"),
        help="subtract tau log prior from the logits of each exit, tau fitted; auto: if the balanced accuracy is "
        "better by two standard errors (default: the recipe's exits.logit_adjustment)",
    )
    _add_risk_flags(parser)
    parser.add_argument(
        "--cost",
        type=Path,
        metavar="FILE",
        help="measured times as cost, from 'elfnet bench inference RUN --costs FILE'",
    )
    parser.add_argument("--all", action="store_true", help="print the baselines, too")
    parser.add_json_flag()
    parser.add_device_flag()
    return parser


def _add_risk_flags(parser: Parser) -> None:
    group = parser.add_argument_group("risk control", "points whose accuracy loss is bounded with a given probability")
    group.add_argument(
        "--epsilon",
        type=numbers,
        metavar="E,E,...",
        help="largest loss against full depth, 0.01 is one point (default: 0.01,0.02,0.05 where examples suffice)",
    )
    group.add_argument("--delta", type=float, default=0.05, help="chance that a promise is broken (default: 0.05)")
    group.add_argument("--simultaneous", action="store_true", help="delta is for all promises together, not for each")
    group.add_argument(
        "--risk-loss",
        choices=("accuracy", "agreement"),
        default="accuracy",
        help="accuracy lost, or answers that differ from full depth, which needs no labels (default: accuracy)",
    )
    group.add_argument(
        "--risk-groups",
        choices=("none", "true", "predicted"),
        default="none",
        help="promise it in every frequency group, by true or by predicted class (default: none)",
    )
    group.add_argument(
        "--risk-method", choices=("betting", "hoeffding-bentkus"), default="betting", help="(default: betting)"
    )
    group.add_argument(
        "--risk-procedure",
        choices=("fixed-sequence", "upper-bound"),
        default="fixed-sequence",
        help="report a p-value or a bound on the loss (default: fixed-sequence)",
    )


def run(words: Sequence[str]) -> int:
    asked = parser().parse_strictly(words)

    from elfnet.calibrate.run import calibrate_run, measure_run
    from elfnet.run.directory import open_run
    from elfnet.train.machine import choose_device

    directory = open_run(asked.run)
    device = choose_device(asked.device)
    cost = _measured_cost(asked.cost) if asked.cost else None
    with directory.lock():
        family = calibrate_run(directory, _request(asked, directory), cost=cost, device=device)
        results = measure_run(directory, family, device=device)
    if asked.json:
        print_json({"family": family.to_dict(), "test": results})
        return 0
    screen = console()
    screen.print(points_table(results, all_points=asked.all))
    for note in family.notes:
        screen.print(note, markup=False)
    for point in family.points:
        if point.promise:
            screen.print(_in_words(point.name, point.promise), markup=False)
    screen.print(f"chosen on {family.n:,} calibration images; wrote {directory.policy_file}", markup=False)
    return 0


def _request(asked: argparse.Namespace, directory: "RunDirectory") -> "FamilyRequest":
    from elfnet.calibrate.fit import DEFAULT_EPSILONS, FamilyRequest, RiskPoints, adjust_from_recipe

    recipe = directory.recipe()
    return FamilyRequest(
        search=asked.search.split(",") if asked.search else recipe.exits.search,
        tolerance_points=asked.tolerance,
        confidence_scale=asked.scale,
        budgets=asked.budgets,
        floors_points=asked.floors,
        scales=asked.scales,
        combine=asked.combine,
        adjust=adjust_from_recipe(recipe, asked.logit_adjustment),
        risk=RiskPoints(
            epsilons=DEFAULT_EPSILONS if asked.epsilon is None else asked.epsilon,
            delta=asked.delta,
            simultaneous=asked.simultaneous,
            method=asked.risk_method,
            procedure=asked.risk_procedure,
            loss=asked.risk_loss,
            groups=asked.risk_groups,
            required=asked.epsilon is not None,
        ),
    )


def _measured_cost(file: Path) -> "MeasuredCost":
    from elfnet.calibrate.measured_cost import MeasuredCost

    try:
        return MeasuredCost.from_dict(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        if isinstance(error, RequestError):
            raise RequestError(f"{file}: {error}") from error
        raise WorkError(
            f"cannot read measured costs from {file}: {error}; write them with 'elfnet bench inference --costs'"
        ) from error


def _in_words(name: str, promise: dict[str, object]) -> str:
    whose = "together" if promise["simultaneous"] else "each on its own"
    where = "" if promise["groups"] == "none" else f", in every frequency group by {promise['groups']} class"
    what = "accuracy lost" if promise["loss"] == "accuracy" else "answers that differ from full depth"
    return (
        f"{name}: {what} at most {promise['epsilon']:g} with probability {1 - float(str(promise['delta'])):g}"
        f"{where} (promises hold {whose}); certified on {promise['n_certified']} images, cost saved "
        f"{100 * float(str(promise['cost_saved'])):.1f} %"
    )
