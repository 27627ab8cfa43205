"""elfnet bench"""

import argparse
import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from elfnet.cli.arguments import Parser
from elfnet.cli.output import console, print_json
from elfnet.errors import RequestError

if TYPE_CHECKING:
    from elfnet.inference.model import Model
    from elfnet.inference.timing import Images

MAX_IMAGES = 2048
MAX_BATCHES = {1: 64, 8: 16}
FEWEST_BATCHES = 6


def parser() -> Parser:
    parser = Parser(
        "bench",
        "Time adaptive inference on this machine: each stage and head, and each operating point against full depth,\n"
        "which is the plain backbone. Images matter, since easy ones are quick: a bundle needs --images, a run takes\n"
        "its test split. With --costs the times become a cost that 'elfnet calibrate --cost' can budget.",
        usage="inference BUNDLE|RUN [--images PATH...] [--batch B,B,...] [--points NAME,...] [--costs FILE] [--json]",
        example="elfnet bench inference runs/elf/elf.elfnet --images photos --batch 1,32 --costs times.json",
    )
    parser.add_argument("what", choices=("inference",), help="what to time")
    parser.add_argument("model", help="a bundle from 'elfnet export', or a run directory")
    parser.add_argument("--images", nargs="+", metavar="PATH", help="files or folders to classify")
    parser.add_argument("--batch", default="1,8,32", help="images at a time (default: 1,8,32)")
    parser.add_argument("--points", help="operating points (default: full and budgets from 0.5 to 1)")
    parser.add_argument("--backend", default="onnxruntime", help="what computes the stages (default: onnxruntime)")
    parser.add_argument("--variant", metavar="NAME", help="of a bundle: float32 (default), int8 or bfloat16")
    parser.add_argument("--threads", type=int, default=None, help="of the backend (default: its own choice)")
    parser.add_argument("--rounds", type=int, default=5, help="how often each batch is measured (default: 5)")
    parser.add_argument("--costs", type=Path, metavar="FILE", help="write the times of stages and heads, largest batch")
    parser.add_json_flag()
    return parser


def run(words: Sequence[str]) -> int:
    asked = parser().parse_strictly(words)
    sizes = _sizes(asked.batch)
    if asked.rounds < 1:
        raise RequestError(f"--rounds {asked.rounds} must be 1 or more")

    from elfnet import atomic
    from elfnet.inference.exit_use import exit_use
    from elfnet.inference.timing import batches_of, measure_stages, time_point

    model, images = _open(asked)
    engine, backend = model.engine, model.engine.backend
    names = _points(asked.points, engine.family.names())
    largest = batches_of(images, max(sizes), most=1)
    if not largest:
        raise RequestError(
            f"{len(images)} images are fewer than a batch of {max(sizes)}; give more, or smaller batches"
        )
    threads = asked.threads or 0
    cost = measure_stages(
        backend,
        largest[0],
        name=asked.backend,
        threads=threads,
        rounds=3 * asked.rounds,
        plain_exit=engine.family.plain_exit,
    )
    times = [
        time_point(
            backend,
            engine.family,
            name,
            batches_of(images, size, most=MAX_BATCHES.get(size, FEWEST_BATCHES)),
            rounds=asked.rounds,
        )
        for size in sizes
        for name in names
    ]
    if asked.costs:
        atomic.write_json(asked.costs, cost.to_dict())
    uses = {name: [use.why for use in exit_use(engine.family.point(name), cost)] for name in names}
    if asked.json:
        print_json({"stages": cost.to_dict(), "points": [entry.to_dict() for entry in times], "exits": uses})
        return 0
    screen = console()
    screen.print(_stages_table(cost.to_dict()))
    screen.print(_points_table([entry.to_dict() for entry in times]))
    for why, sharing in _grouped(uses).items():
        screen.print(f"{', '.join(sharing)}: {why}", markup=False)
    if asked.costs:
        screen.print(f"wrote {asked.costs}", markup=False)
    return 0


def _grouped(uses: dict[str, list[str]]) -> dict[str, list[str]]:
    """Each reason once, with the points that it holds for."""
    sharing: dict[str, list[str]] = {}
    for name, reasons in uses.items():
        for why in reasons:
            sharing.setdefault(why, []).append(name)
    return sharing


def _sizes(text: str) -> list[int]:
    try:
        sizes = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise RequestError(f"--batch {text!r} must be whole numbers with commas, such as 1,8,32") from None
    if not sizes or min(sizes) < 1:
        raise RequestError(f"--batch {text!r} must be numbers of images, such as 1,8,32")
    return sizes


def _points(text: str | None, names: list[str]) -> list[str]:
    """Those asked for; by default full depth and a few budgets."""
    if text:
        return [name.strip() for name in text.split(",")]
    wanted = ["full", *(f"budget={budget / 10:g}" for budget in range(5, 11))]
    return [name for name in wanted if name in names]


def _open(asked: argparse.Namespace) -> "tuple[Model, Images]":
    """The model, and normalised images for it."""
    if (Path(asked.model) / "recipe.toml").is_file():
        from elfnet.export.from_run import model_of_run, split_images
        from elfnet.run.directory import open_run

        if asked.variant is not None:
            raise RequestError(f"--variant is of a bundle, and {asked.model} is a run; export it with --int8 first")
        run = open_run(asked.model)
        model = model_of_run(run, backend=asked.backend, threads=asked.threads)
        return model, split_images(run, "test") if asked.images is None else _read(model, asked.images)
    if asked.images is None:
        raise RequestError("a bundle has no images of its own; name some with --images")
    from elfnet.inference.model import load

    model = load(asked.model, backend=asked.backend, variant=asked.variant or "float32", threads=asked.threads)
    return model, _read(model, asked.images)


def _read(model: "Model", names: list[str]) -> "Images":
    """Image files, prepared; a bad one stops here, since it would be missing from the figures."""
    from elfnet.inference.predict_files import find_images

    paths = list(islice(find_images(names, listed=sys.stdin), MAX_IMAGES))
    if not paths:
        raise RequestError(f"there are no images in {', '.join(names)}; name files or folders that have some")
    return model.preprocess(paths)


def _stages_table(cost: dict[str, Any]) -> Table:
    table = Table(title=f"Stages on {cost['backend']}, batch {cost['batch']}", caption="microseconds an image")
    for name in ("exit", "stage", "head"):
        table.add_column(name, justify="right")
    for number, (stage, head) in enumerate(zip(cost["stages"], cost["heads"], strict=True), 1):
        last = number == len(cost["stages"])
        table.add_row(str(number), f"{1e6 * stage:.1f}", "in the stage" if last else f"{1e6 * head:.1f}")
    return table


def _points_table(times: list[dict[str, Any]]) -> Table:
    table = Table(title="Operating points", caption="milliseconds a call; overhead: to the sum of the stages alone")
    for name in ("batch", "point", "mean cost", "p50", "p95", "p99", "to full", "overhead"):
        table.add_column(name, justify="left" if name == "point" else "right")
    full = {entry["batch"]: entry["p50"] for entry in times if entry["point"] == "full"}
    for entry in times:
        base = full.get(entry["batch"])
        table.add_row(
            str(entry["batch"]),
            entry["point"],
            f"{entry['mean_cost']:.3f}",
            *(f"{entry[name]:.2f}" for name in ("p50", "p95", "p99")),
            f"{entry['p50'] / base:.2f}" if base else "–",
            f"{entry['overhead']:.2f}",
        )
    return table
