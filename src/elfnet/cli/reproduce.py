"""The command `elfnet reproduce`, and its progress: which run of how many, its epochs, and the remaining time."""

import argparse
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from elfnet.cli.arguments import Parser, add_recipe_flags, recipe_overrides
from elfnet.cli.output import console, print_json
from elfnet.errors import WorkError
from elfnet.report.formatting import duration
from elfnet.reproduce.paper_table import TABLES, TIERS
from elfnet.run.log import EpochRecord
from elfnet.train.logging import Watch, epoch_line

if TYPE_CHECKING:
    from elfnet.reproduce.cell import Cell
    from elfnet.reproduce.plan import PlannedRun

RESUME = "progress is saved; run the same command to resume"


def parser() -> Parser:
    parser = Parser(
        "reproduce",
        "Fill a table of the paper, or the table of modern training: train, calibrate and measure every row in every\n"
        "column, and write the table with the published numbers (table.md, .html, .tex, .json). It can be stopped at\n"
        "any time: run the same command to resume. Finished runs are skipped.",
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
        help="5 epochs on digits, 40 epochs, 100 epochs, or the recipe's own length (default: smoke)",
    )
    parser.add_argument("--rows", type=_names, default=(), help="names from --list, or paper, or extra (default: all)")
    parser.add_argument("--columns", type=_names, default=(), help="names from --list (default: all)")
    parser.add_argument("--seeds", type=_integers, default=(0,), metavar="S,S,...", help="training seeds (default: 0)")
    parser.add_argument("--out", type=Path, help="directory of the table (default: reproduced/TABLE-TIER)")
    parser.add_argument(
        "--max-hours",
        type=float,
        metavar="H",
        help="stop after the epoch in which H hours are reached; 0: only write the table",
    )
    parser.add_argument("--threads", type=int, metavar="N", help="CPU threads of new runs (--train.threads)")
    parser.add_argument("--list", action="store_true", help="list the runs and their state, and run nothing")
    parser.add_json_flag()
    add_recipe_flags(parser)
    return parser


def run(words: Sequence[str]) -> int:
    args = parser().parse_strictly(words)
    settings = recipe_overrides(args)
    if args.threads is not None:
        settings["train.threads"] = args.threads
    out = args.out or Path("reproduced") / f"{args.table}-{args.tier}"
    request: dict[str, Any] = {name: getattr(args, name) for name in ("tier", "rows", "columns", "seeds")}
    request["settings"] = settings
    if args.list:
        return _list(args, out, request)

    # Imported after the arguments are parsed, so that a wrong flag is reported without loading torch.
    from elfnet.reproduce.run import reproduce_table

    with TableProgress() as progress, _stop_on_interrupt(progress.say) as interrupted:
        outcome = reproduce_table(
            args.table, out, **request, max_hours=args.max_hours, stop=interrupted, observer=progress
        )
    if outcome.failed:
        name, why = next(iter(outcome.failed.items()))
        raise WorkError(f"{len(outcome.failed)} of {outcome.runs} runs failed, the first is {name} ({why}); {RESUME}")
    if args.json:
        summary = {"runs": outcome.runs, "done": outcome.done, "stopped": outcome.stopped}
        print_json({"out": str(out), **summary, "table": outcome.table})
    else:
        state = f"{outcome.done} of {outcome.runs} runs are done"
        state = f"stopped: {state}; {RESUME}" if outcome.stopped else state
        console().print(f"{state}\ntable: {out / 'table.md'}, .html, .tex, .json", markup=False, soft_wrap=True)
    return 130 if interrupted() else 0


def _list(args: argparse.Namespace, out: Path, request: dict[str, Any]) -> int:
    from elfnet.reproduce.plan import plan_table

    plan = plan_table(args.table, out, **request)
    if args.json:
        print_json([_run_json(planned) for planned in plan])
        return 0
    table = Table(title=f"{args.table}, tier {args.tier}, in {escape(str(out))}")
    for name in ("column", "row", "system", "in the paper", "starts from", "seed", "epochs", "state"):
        table.add_column(name)
    for planned in plan:
        cell = planned.cell
        table.add_row(
            cell.column.name,
            cell.row.name,
            escape(cell.row.label),
            "yes" if cell.row.in_paper else "no",
            cell.row.starts_from or "",
            str(cell.seed),
            f"{planned.epochs_done}/{planned.epochs}",
            planned.state,
        )
    console().print(table)
    return 0


def _run_json(planned: "PlannedRun") -> dict[str, Any]:
    cell = planned.cell
    return {
        "column": cell.column.name,
        "row": cell.row.name,
        "seed": cell.seed,
        "in_paper": cell.row.in_paper,
        "starts_from": cell.row.starts_from,
        "epochs": planned.epochs,
        "epochs_done": planned.epochs_done,
        "state": planned.state,
    }


@contextmanager
def _stop_on_interrupt(say: Callable[[str], None]) -> Iterator[Callable[[], bool]]:
    """Yield a function that tells whether Ctrl-C was pressed, to stop after the epoch.

    A second Ctrl-C stops at once; the unfinished epoch is then repeated when the run is resumed.
    """
    interrupted = False

    def handle(_number: int, _frame: FrameType | None) -> None:
        nonlocal interrupted
        if interrupted:
            raise KeyboardInterrupt
        interrupted = True
        say("stopping after this epoch; interrupt again to stop at once")

    previous = signal.signal(signal.SIGINT, handle)
    try:
        yield lambda: interrupted
    finally:
        signal.signal(signal.SIGINT, previous)


def _names(text: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(",") if part.strip())
    if not names:
        # An empty tuple would select everything.
        raise argparse.ArgumentTypeError(f"{text!r} contains no name; --list shows the names")
    return names


def _integers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} must be whole numbers separated by commas") from None


class TableProgress(Watch):
    """A `TableObserver` that prints to standard error; use it in a `with` statement."""

    def __init__(self) -> None:
        super().__init__()
        self._remaining = ""

    def run_started(self, cell: "Cell", number: int, runs: int) -> None:
        self.say(f"run {number} of {runs}: {cell.name}")

    def remaining(self, seconds: float | None) -> None:
        self._remaining = "" if seconds is None else f"  about {duration(seconds)} left for all runs"

    def epoch(self, record: EpochRecord) -> None:
        self._finish_epoch(record)
        self.say(epoch_line(record, self._epochs) + self._remaining)

    def run_finished(self, cell: "Cell", failure: str | None) -> None:
        self.say(f"{cell.name}: {'done' if failure is None else f'failed: {failure}'}")
