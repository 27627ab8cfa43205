"""The command `elfnet bench`: measure the time of stages, heads and operating points on this machine."""

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
"""Largest number of batches to measure, by batch size."""
MAX_BATCHES_OF_OTHER_SIZES = 6


def parser() -> Parser:
    parser = Parser(
        "bench",
        "Measure adaptive inference on this machine: each stage and head, and each operating point compared with\n"
        "full depth, which is the plain backbone. The times depend on the images, because easy images exit early:\n"
        "a bundle needs --images, a run uses its test split by default. With --costs the times are written to a file\n"
        "that 'elfnet calibrate --cost' uses as cost.",
        usage="inference BUNDLE|RUN [--images PATH...] [--batch B,B,...] [--points NAME,...] [--costs FILE] [--json]",
        example="elfnet bench inference runs/elf/elf.onnx --images photos --batch 1,32 --costs times.json",
    )
    parser.add_argument("what", choices=("inference",), help="what to measure")
    parser.add_argument("model", help="bundle from 'elfnet export', or run directory")
    parser.add_argument("--images", nargs="+", metavar="PATH", help="files or folders to classify")
    parser.add_argument("--batch", default="1,8,32", help="batch sizes (default: 1,8,32)")
    parser.add_argument(
        "--points", help="operating points, or budgets such as 5ms (default: full and budgets from 0.5 to 1)"
    )
    parser.add_argument("--backend", default="onnxruntime", help="backend of the stages (default: onnxruntime)")
    parser.add_argument("--variant", metavar="NAME", help="precision of a bundle, if it has several")
    parser.add_argument("--threads", type=int, default=None, help="threads of the backend (default: its own choice)")
    parser.add_argument("--rounds", type=int, default=5, help="number of measurements per batch (default: 5)")
    parser.add_argument(
        "--costs", type=Path, metavar="FILE", help="write the times of stages and heads at the largest batch size"
    )
    parser.add_json_flag()
    return parser


def run(words: Sequence[str]) -> int:
    args = parser().parse_strictly(words)
    sizes = _batch_sizes(args.batch)
    if args.rounds < 1:
        raise RequestError(f"--rounds {args.rounds} must be 1 or more")

    from elfnet.inference.exit_use import exit_use
    from elfnet.inference.timing import batches_of, measure_stages, time_point

    model, images = _open_model(args)
    engine, backend = model.engine, model.engine.backend
    points = [model.resolve(name) for name in _point_names(args.points, engine.family.names())]
    names = [one if isinstance(one, str) else engine.family.for_budget(one).name for one in points]
    largest = batches_of(images, max(sizes), most=1)
    if not largest:
        raise RequestError(
            f"{len(images)} images are fewer than a batch of {max(sizes)}; give more images, or a smaller --batch"
        )
    threads = args.threads or 0
    cost = measure_stages(
        backend,
        largest[0],
        name=args.backend,
        threads=threads,
        rounds=3 * args.rounds,
        plain_exit=engine.family.plain_exit,
    )
    times = [
        time_point(
            backend,
            engine.family,
            name,
            batches_of(images, size, most=MAX_BATCHES.get(size, MAX_BATCHES_OF_OTHER_SIZES)),
            engine=engine,
            rounds=args.rounds,
        )
        for size in sizes
        for name in names
    ]
    if args.costs:
        cost.save(args.costs)
    uses = {name: [use.why for use in exit_use(engine.family.point(name), cost)] for name in names}
    if args.json:
        print_json({"stages": cost.to_dict(), "points": [entry.to_dict() for entry in times], "exits": uses})
        return 0
    screen = console()
    screen.print(_stages_table(cost.to_dict()))
    screen.print(_points_table([entry.to_dict() for entry in times]))
    for why, sharing in _points_by_reason(uses).items():
        screen.print(f"{', '.join(sharing)}: {why}", markup=False)
    if args.costs:
        screen.print(f"wrote {args.costs}", markup=False)
    return 0


def _points_by_reason(uses: dict[str, list[str]]) -> dict[str, list[str]]:
    """Map each reason to the points that it holds for."""
    sharing: dict[str, list[str]] = {}
    for name, reasons in uses.items():
        for why in reasons:
            sharing.setdefault(why, []).append(name)
    return sharing


def _batch_sizes(text: str) -> list[int]:
    try:
        sizes = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise RequestError(f"--batch {text!r} must be integers separated by commas, such as 1,8,32") from None
    if not sizes or min(sizes) < 1:
        raise RequestError(f"--batch {text!r} must be batch sizes of 1 or more, such as 1,8,32")
    return sizes


def _point_names(text: str | None, names: list[str]) -> list[str]:
    """Return the operating points of `--points`; by default full depth and a few budgets."""
    if text:
        return [name.strip() for name in text.split(",")]
    wanted = ["full", *(f"budget={budget / 10:g}" for budget in range(5, 11))]
    return [name for name in wanted if name in names]


def _open_model(args: argparse.Namespace) -> "tuple[Model, Images]":
    """Return the model and the preprocessed images to measure it on."""
    if (Path(args.model) / "recipe.toml").is_file():
        from elfnet.export.read_run import model_of_run, split_images
        from elfnet.run.directory import open_run

        if args.variant is not None:
            raise RequestError(f"--variant needs a bundle, but {args.model} is a run; export it with --int8 first")
        run = open_run(args.model)
        model = model_of_run(run, backend=args.backend, threads=args.threads)
        return model, split_images(run, "test") if args.images is None else _read_images(model, args.images)
    if args.images is None:
        raise RequestError("a bundle contains no images; give some with --images")
    from elfnet.inference.model import load

    model = load(args.model, backend=args.backend, variant=args.variant, threads=args.threads)
    return model, _read_images(model, args.images)


def _read_images(model: "Model", names: list[str]) -> "Images":
    """Read and preprocess image files; an unreadable one is an error, since it would be missing from the results."""
    from elfnet.inference.predict_files import find_images

    model.preprocess.require_images("--images")
    paths = list(islice(find_images(names, listed=sys.stdin), MAX_IMAGES))
    if not paths:
        raise RequestError(f"there are no images in {', '.join(names)}; give image files, or folders that contain some")
    return model.preprocess(paths)


def _stages_table(cost: dict[str, Any]) -> Table:
    table = Table(title=f"Stages on {cost['backend']}, batch {cost['batch']}", caption="microseconds per image")
    for name in ("exit", "stage", "head"):
        table.add_column(name, justify="right")
    for number, (stage, head) in enumerate(zip(cost["stages"], cost["heads"], strict=True), 1):
        last = number == len(cost["stages"])
        table.add_row(str(number), f"{1e6 * stage:.1f}", "in the stage" if last else f"{1e6 * head:.1f}")
    return table


def _points_table(times: list[dict[str, Any]]) -> Table:
    caption = "milliseconds per call; overhead: relative to the sum of the stages alone"
    table = Table(title="Operating points", caption=caption)
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
