"""`elfnet predict`: classify image files with a bundle or a run, here or on a Ray cluster."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, redirect_stdout
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from elfnet.cli.arguments import Parser, budget
from elfnet.errors import RequestError, WorkError

if TYPE_CHECKING:
    from elfnet.calibrate.measured_cost import TimeBudget
    from elfnet.cli.output import Writer
    from elfnet.inference.model import Model

RAY = "ray"


def parser() -> Parser:
    parser = Parser(
        "predict",
        "Classify image files with a bundle (without torch) or a run. One line per file: a table on a terminal,\n"
        "JSON lines otherwise. A file that is not an image is reported and skipped; the exit code is then 1.",
        usage="BUNDLE|RUN IMAGE|FOLDER|- ... [--format FORMAT] [--out FILE] [--operating-point NAME | --budget B]",
        example="elfnet predict runs/elf/elf.onnx photos --budget 0.6 --format csv --out answers.csv",
    )
    parser.add_argument(
        "model", help="a bundle from 'elfnet export', a run directory, a name of 'elfnet models ls', or hub:user/name"
    )
    parser.add_argument(
        "images",
        nargs="+",
        metavar="image",
        help="files, folders (searched recursively), or - for a list of paths on standard input",
    )
    parser.add_argument("--format", choices=("jsonl", "csv", "table"), help="default: table on a terminal, else jsonl")
    parser.add_argument("--out", type=Path, metavar="FILE", help="file to write; the suffix .csv implies --format csv")
    parser.add_argument("--overwrite", action="store_true", help="replace the file in --out")
    parser.add_argument(
        "--operating-point", metavar="NAME", help="operating point (default: accurate where it is better than full)"
    )
    parser.add_argument(
        "--budget",
        type=budget,
        metavar="B",
        help="most accurate operating point with mean cost <= B, or within a time: 5ms is the mean time per image on "
        "this machine, one image at a time",
    )
    parser.add_argument("--top", type=int, default=1, metavar="K", help="number of best classes per image (default: 1)")
    parser.add_argument("--batch", type=int, default=64, metavar="N", help="images per batch (default: 64)")
    parser.add_argument(
        "--backend",
        metavar="NAME",
        help="onnxruntime (default for a bundle), openvino, torch (default for a run), torch-compiled; or ray: the "
        "default backend on every worker of a Ray cluster",
    )
    parser.add_argument("--variant", metavar="NAME", help="precision of a bundle, if it has several")
    parser.add_argument("--cpus", type=int, metavar="N", help="ray: cores per worker (default: 1)")
    parser.add_argument("--address", help="ray: address of the cluster (default: $RAY_ADDRESS, else this machine)")
    parser.add_argument("--threads", type=int, metavar="N", help="threads of the backend (default: its own choice)")
    parser.add_argument("--abstain-below", type=float, default=0.0, metavar="P", help="abstain below this confidence")
    parser.add_argument("--deepest-exit", type=int, metavar="K", help="all remaining images exit at exit K (from 1)")
    parser.add_argument("--no-resize", action="store_true", help="refuse images that do not have the network's size")
    parser.add_argument("--json", action="store_true", help="alias of --format jsonl")
    return parser


def run(words: Sequence[str]) -> int:
    args = parser().parse_strictly(words)
    _require_consistent(args)

    from elfnet.cli.output import FileProgress
    from elfnet.inference.predict_files import Classified, NotRead, classify_files, find_images

    settings_of_model = _model_settings(args)
    # Also opened here with --backend ray, so that errors appear before the cluster starts.
    model = _open_model(args.model, _asked_point(args), settings_of_model)
    model.preprocess.require_images("'elfnet predict'")
    # Workers use the same point: a time that they measure themselves could choose another one.
    open_model = partial(_open_model, args.model, model.operating_point, settings_of_model)
    files = find_images(args.images, listed=sys.stdin)
    settings: dict[str, Any] = {"batch": args.batch, "top": args.top, "resize": not args.no_resize}
    failed = total = 0
    with _output(args.out) as out, FileProgress(shown=not out.isatty()) as progress, ExitStack() as stack:
        writer = _writer(args, out, model)
        results: Iterator[Classified | NotRead] = classify_files(model, files, **settings)
        if args.backend == RAY:
            from elfnet.inference.predict_files import classify_on_ray

            on_ray = classify_on_ray(open_model, files, cpus=args.cpus or 1, address=args.address, **settings)
            results = stack.enter_context(closing(on_ray))
            # `out` keeps the original standard output; messages of Ray go to standard error.
            stack.enter_context(redirect_stdout(sys.stderr))
        for result in results:
            total += 1
            if isinstance(result, Classified):
                writer.write(result)
            else:
                failed += 1
                progress.complain(result.reason)
            progress.step()
    if not total:
        raise WorkError("no image was named on standard input; write one path per line")
    return 1 if failed else 0


def _require_consistent(args: argparse.Namespace) -> None:
    if args.operating_point is not None and args.budget is not None:
        raise RequestError("--operating-point and --budget both choose the point; give one of them")
    if args.json and args.format not in (None, "jsonl"):
        raise RequestError(f"--json and --format {args.format} contradict; give one of them")
    for name in ("cpus", "address"):
        if getattr(args, name) is not None and args.backend != RAY:
            raise RequestError(f"--{name} is for --backend ray; remove it, or add --backend ray")
    for name in ("top", "batch"):
        if getattr(args, name) < 1:
            raise RequestError(f"--{name} {getattr(args, name)} must be 1 or more")
    if args.out is not None and args.out.exists() and not (args.overwrite and args.out.is_file()):
        raise RequestError(f"{args.out} exists; give --overwrite, or another --out")


def _model_settings(args: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of `load` and `model_of_run`, here and in the workers of a cluster."""
    settings: dict[str, Any] = {name: getattr(args, name) for name in ("threads", "deepest_exit", "abstain_below")}
    if args.backend == RAY:
        settings["threads"] = args.threads or args.cpus or 1
    elif args.backend:
        settings["backend"] = args.backend
    if args.variant is not None:
        settings["variant"] = args.variant
    return settings


def _asked_point(args: argparse.Namespace) -> str | float | None:
    """Return the point of --operating-point or --budget; None for the default."""
    if args.operating_point is not None:
        return str(args.operating_point)
    within: float | TimeBudget | None = args.budget
    return within if within is None or isinstance(within, float) else str(within)


def _open_model(path: str, point: str | float | None, settings: dict[str, Any]) -> "Model":
    if (Path(path) / "recipe.toml").is_file():
        if "variant" in settings:
            raise RequestError(
                f"--variant is for bundles, and {path} is a run; export it with --int8 or --bfloat16 first"
            )
        from elfnet.export.read_run import model_of_run
        from elfnet.run.directory import open_run

        model = model_of_run(open_run(path), **settings)
    else:
        from elfnet.inference.model import load

        model = load(path, **settings)
    if point is not None:
        model.set_operating_point(point)
    return model


def _writer(args: argparse.Namespace, out: TextIO, model: "Model") -> "Writer":
    from elfnet.cli.output import Columns, Csv, JsonLines

    form = "jsonl" if args.json else args.format
    if form is None and args.out is not None:
        form = "csv" if args.out.suffix.lower() == ".csv" else "jsonl"
    if form is None:
        form = "table" if out.isatty() else "jsonl"
    top = min(args.top, len(model.class_names))
    if form == "table":
        return Columns(out, top=top, longest_label=max(map(len, model.class_names)))
    return Csv(out, top=top) if form == "csv" else JsonLines(out, top=top)


@contextmanager
def _output(path: Path | None) -> Iterator[TextIO]:
    """Open standard output, or a file that appears when it is complete."""
    if path is None:
        yield sys.stdout
        return
    from elfnet import atomic

    with atomic.replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        yield file
