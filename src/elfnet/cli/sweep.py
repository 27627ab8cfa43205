"""elfnet sweep"""

import sys
from collections.abc import Sequence
from pathlib import Path

from elfnet.cli.arguments import Parser, add_recipe_flags, recipe_overrides
from elfnet.cli.show import console, print_json
from elfnet.sweep.grid import Cell
from elfnet.sweep.run_sweep import run_sweep


def parser() -> Parser:
    parser = Parser(
        "sweep",
        "Train a recipe for every combination of values of some settings, and write one table.\n"
        "It can be stopped at any moment; the same command goes on with it and skips what is done.",
        usage="RECIPE --over SETTING=VALUE,VALUE ... [--out DIR] [--jobs N] [--backend local|ray] [--json]",
        example="elfnet sweep digits/elf-ce-drw --over exits.train_threshold=0.16,0.18,0.2 --over train.seed=0,1,2",
    )
    parser.add_argument("recipe", help="a name from 'elfnet recipes ls', or a .toml file")
    parser.add_argument("--over", action="append", default=[], metavar="SETTING=VALUES", help="may be given repeatedly")
    parser.add_argument("--out", type=Path, help="directory (default: sweeps/ and the recipe's name)")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time on this machine (default: 1)")
    parser.add_argument("--backend", choices=("local", "ray"), default="local", help="where runs are (default: local)")
    parser.add_argument("--cpus", type=int, default=1, help="ray: cores of a run (default: 1)")
    parser.add_argument("--gpus", type=float, default=0, help="ray: GPUs of a run (default: 0)")
    parser.add_argument("--address", help="ray: the cluster (default: $RAY_ADDRESS, else this machine)")
    parser.add_json_flag()
    add_recipe_flags(parser)
    return parser


def run(words: Sequence[str]) -> int:
    asked = parser().parse_strictly(words)
    out = asked.out or Path("sweeps") / Path(asked.recipe).with_suffix("").as_posix().replace("/", "-")
    table = run_sweep(
        asked.recipe,
        asked.over,
        out,
        settings=recipe_overrides(asked),
        backend=asked.backend,
        jobs=asked.jobs,
        cpus=asked.cpus,
        gpus=asked.gpus,
        address=asked.address,
        finished=_say,
    )
    if asked.json:
        print_json({"sweep": str(out), **table})
        return 0
    screen = console()
    screen.print((out / "table.md").read_text(), markup=False, soft_wrap=True)
    screen.print(f"sweep: {out}", markup=False)
    return 0


def _say(cell: Cell, failure: str | None) -> None:
    sys.stderr.write(f"{cell.name}: {'done' if failure is None else 'failed: ' + failure}\n")
    sys.stderr.flush()
