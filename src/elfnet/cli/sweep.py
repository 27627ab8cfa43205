"""`elfnet sweep`: train a recipe over a grid of settings."""

import sys
from collections.abc import Sequence
from pathlib import Path

from elfnet.cli.arguments import Parser, add_recipe_flags, recipe_overrides
from elfnet.cli.output import console, print_json
from elfnet.sweep import Cell, run_sweep


def parser() -> Parser:
    parser = Parser(
        "sweep",
        "Train a recipe for every combination of values of some settings, and write one table.\n"
        "It can be interrupted at any moment; run the same command to resume. Finished runs are skipped.",
        usage="RECIPE --over SETTING=VALUE,VALUE ... [--out DIR] [--jobs N] [--backend local|ray] [--json]",
        example="elfnet sweep digits/elf-ce-drw --over exits.train_threshold=0.16,0.18,0.2 --over train.seed=0,1,2",
    )
    parser.add_argument("recipe", help="a name from 'elfnet recipes ls', or a .toml file")
    parser.add_argument(
        "--over", action="append", default=[], metavar="SETTING=VALUES", help="a setting and its values; repeatable"
    )
    parser.add_argument("--out", type=Path, help="directory (default: sweeps/ and the recipe's name)")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time on this machine (default: 1)")
    parser.add_argument(
        "--backend", choices=("local", "ray"), default="local", help="where runs are executed (default: local)"
    )
    parser.add_argument("--cpus", type=int, default=1, help="ray: cores per run (default: 1)")
    parser.add_argument("--gpus", type=float, default=0, help="ray: GPUs per run (default: 0)")
    parser.add_argument("--address", help="ray: address of the cluster (default: $RAY_ADDRESS, else this machine)")
    parser.add_json_flag()
    add_recipe_flags(parser)
    return parser


def run(words: Sequence[str]) -> int:
    args = parser().parse_strictly(words)
    out = args.out or Path("sweeps") / Path(args.recipe).with_suffix("").as_posix().replace("/", "-")
    table = run_sweep(
        args.recipe,
        args.over,
        out,
        settings=recipe_overrides(args),
        backend=args.backend,
        jobs=args.jobs,
        cpus=args.cpus,
        gpus=args.gpus,
        address=args.address,
        on_finished=_print_finished,
        on_note=_print_note,
    )
    if args.json:
        print_json({"sweep": str(out), **table})
        return 0
    screen = console()
    screen.print((out / "table.md").read_text(), markup=False, soft_wrap=True)
    screen.print(f"sweep: {out}", markup=False)
    return 0


def _print_finished(cell: Cell, failure: str | None) -> None:
    _print_note(f"{cell.name}: {'done' if failure is None else 'failed: ' + failure}")


def _print_note(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
