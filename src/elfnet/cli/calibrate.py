"""elfnet calibrate"""

from collections.abc import Sequence

from elfnet.cli.arguments import Parser
from elfnet.cli.show import console, points_table, print_json


def parser() -> Parser:
    parser = Parser(
        "calibrate",
        "Search the threshold s of eq. 5 on the calibration split (never on the test split), write policy.json,\n"
        "then measure every operating point once on the test split and write metrics.json.",
        usage="RUN [--search S,S,...] [--tolerance POINTS] [--json]",
        example="elfnet calibrate runs/elf --search 0.6,0.7,0.8,0.9 --tolerance 0.5",
    )
    parser.add_argument("run", help="a run directory")
    parser.add_argument("--search", metavar="S,S,...", help="candidates for s (default: the recipe's)")
    parser.add_argument("--scale", type=float, help="multiply logits by this before eq. 5 (default: the recipe's)")
    parser.add_argument(
        "--tolerance", type=float, default=1.0, help="points of accuracy that 'economic' may give up (default: 1.0)"
    )
    parser.add_json_flag()
    parser.add_device_flag()
    return parser


def run(words: Sequence[str]) -> int:
    asked = parser().parse_strictly(words)

    from elfnet.calibrate.run_family import calibrate_run, measure_run
    from elfnet.checkpoint.run_directory import open_run
    from elfnet.train.machine import choose_device

    directory = open_run(asked.run)
    device = choose_device(asked.device)
    family = calibrate_run(
        directory,
        search=asked.search.split(",") if asked.search else None,
        tolerance_points=asked.tolerance,
        confidence_scale=asked.scale,
        device=device,
    )
    results = measure_run(directory, family, device=device)
    if asked.json:
        print_json({"family": family.to_dict(), "test": results})
        return 0
    screen = console()
    screen.print(points_table(results))
    screen.print(f"chosen on {family.n:,} calibration images; wrote {directory.policy_file}", markup=False)
    return 0
