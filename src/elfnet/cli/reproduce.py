"""elfnet reproduce"""

import argparse
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from rich.markup import escape
from rich.table import Table

from elfnet.cli.arguments import Parser, add_recipe_flags, recipe_overrides
from elfnet.cli.output import console, print_json
from elfnet.errors import WorkError
from elfnet.reproduce.paper_table import TABLES
from elfnet.reproduce.tiers import TIERS


def parser() -> Parser:
    parser = Parser(
        "reproduce",
        "Fill a table of the paper, or the table of modern training: train, calibrate and measure every row in every\n"
        "column, and write the table with published numbers beside (table.md, .html, .tex, .json). It can be stopped\n"
        "at any moment: run the same command to resume; what is done is skipped.",
        usage="{table1,table2,table3,strong} [--tier smoke|short|medium|paper] [--rows R,R] [--columns C,C] "
        "[--seeds 0,1,2] [--out DIR] [--max-hours H] [--threads N] [--list] [--SECTION.FIELD VALUE ...] [--json]",
        example="elfnet reproduce table2 --tier short --rows ce-drw,elf-ce-drw --columns cifar10-lt-100 --seeds 0,1,2",
    )
    parser.add_argument(
        "table",
        choices=TABLES,
        help="1: ResNet-50; 2: ResNet-32 on CIFAR; 3: DenseNet-169; strong: modern training on CIFAR",
    )
    parser.add_argument(
        "--tier",
        choices=tuple(TIERS),
        default="smoke",
        help="digits, 40 epochs, 100 epochs, or the recipe's own length (default: smoke)",
    )
    parser.add_argument("--rows", type=_names, default=(), help="names from --list, or paper, or extra (default: all)")
    parser.add_argument("--columns", type=_names, default=(), help="names from --list (default: all)")
    parser.add_argument(
        "--seeds", type=_whole_numbers, default=(0,), metavar="S,S,...", help="training seeds (default: 0)"
    )
    parser.add_argument("--out", type=Path, help="directory (default: reproduced/, the table and the tier)")
    parser.add_argument(
        "--max-hours", type=float, metavar="H", help="stop after the epoch in which H hours are over; 0: write only"
    )
    parser.add_argument("--threads", type=int, metavar="N", help="CPU threads of runs that begin (--train.threads)")
    parser.add_argument("--list", action="store_true", help="say what would be run, and run nothing")
    parser.add_json_flag()
    add_recipe_flags(parser)
    return parser


def run(words: Sequence[str]) -> int:
    asked = parser().parse_strictly(words)
    settings = recipe_overrides(asked)
    if asked.threads is not None:
        settings["train.threads"] = asked.threads
    out = asked.out or Path("reproduced") / f"{asked.table}-{asked.tier}"
    what: dict[str, Any] = {name: getattr(asked, name) for name in ("tier", "rows", "columns", "seeds")}
    if asked.list:
        return _list(asked, out, {**what, "settings": settings})

    # Imported after the request was understood: a wrong flag should not wait for torch.
    from elfnet.cli.table_progress import TableWatch
    from elfnet.reproduce.run_table import reproduce_table

    with TableWatch() as watch, _stop_on_interrupt(watch) as interrupted:
        outcome = reproduce_table(
            asked.table, out, **what, settings=settings, max_hours=asked.max_hours, stop=interrupted, watcher=watch
        )
    if outcome.failed:
        name, why = next(iter(outcome.failed.items()))
        raise WorkError(
            f"{len(outcome.failed)} of {outcome.runs} runs failed, the first being {name} ({why}); "
            "repeat the command to go on"
        )
    if asked.json:
        summary = {"runs": outcome.runs, "done": outcome.done, "stopped": outcome.stopped}
        print_json({"out": str(out), **summary, "table": outcome.table})
    else:
        state = f"{outcome.done} of {outcome.runs} runs are done"
        state += "; stopped, repeat the command to go on" if outcome.stopped else ""
        console().print(f"{state}\ntable: {out / 'table.md'}, .html, .tex, .json", markup=False, soft_wrap=True)
    return 130 if interrupted() else 0


def _list(asked: argparse.Namespace, out: Path, what: dict[str, Any]) -> int:
    from elfnet.reproduce.run_table import planned_steps

    steps = planned_steps(asked.table, out, **what)
    if asked.json:
        print_json(
            [
                {
                    "column": step.cell.column.name,
                    "row": step.cell.row.name,
                    "seed": step.cell.seed,
                    "in_paper": step.cell.row.in_paper,
                    "starts_from": step.cell.row.starts_from,
                    "epochs": step.epochs,
                    "epochs_done": step.epochs_done,
                    "state": step.state,
                }
                for step in steps
            ]
        )
        return 0
    table = Table(title=f"{asked.table}, tier {asked.tier}, in {escape(str(out))}")
    for name in ("column", "row", "system", "in the paper", "starts from", "seed", "epochs", "state"):
        table.add_column(name)
    for step in steps:
        cell = step.cell
        table.add_row(
            cell.column.name,
            cell.row.name,
            escape(cell.row.label),
            "yes" if cell.row.in_paper else "no",
            cell.row.starts_from or "",
            str(cell.seed),
            f"{step.epochs_done}/{step.epochs}",
            step.state,
        )
    console().print(table)
    return 0


@contextmanager
def _stop_on_interrupt(watch: Any) -> Iterator[Any]:
    """Ctrl-C asks to stop after the epoch; a second one stops at once, and that epoch is run again next time."""
    asked = False

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        watch.say("stopping after this epoch; interrupt again to stop at once")

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, before)


def _names(text: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(",") if part.strip())
    if not names:
        # No names mean all; who wrote something meant some.
        raise argparse.ArgumentTypeError(f"{text!r} names nothing; --list shows the names")
    return names


def _whole_numbers(text: str) -> tuple[int, ...]:
    """Numbers with commas between them."""
    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} must be whole numbers with commas between them") from None
