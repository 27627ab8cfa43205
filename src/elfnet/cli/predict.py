"""elfnet predict"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, redirect_stdout
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from elfnet.cli.arguments import Parser
from elfnet.errors import RequestError, WorkError

if TYPE_CHECKING:
    from elfnet.cli.output import Writer
    from elfnet.inference.model import Model

RAY = "ray"


def parser() -> Parser:
    parser = Parser(
        "predict",
        "Classify image files with a bundle (no torch needed) or a run. One line a file: JSON lines in a pipe,\n"
        "columns on a terminal. A file that is no image is reported and skipped; the exit code is then 1.",
        usage="BUNDLE|RUN IMAGE|FOLDER|- ... [--format FORMAT] [--out FILE] [--operating-point NAME | --budget B]",
        example="elfnet predict runs/elf/elf.elfnet photos --budget 0.6 --format csv --out answers.csv",
    )
    parser.add_argument("model", help="a bundle from 'elfnet export', or a run directory")
    parser.add_argument(
        "images",
        nargs="+",
        metavar="image",
        help="files, folders (searched through), or - for a list on standard input",
    )
    parser.add_argument("--format", choices=("jsonl", "csv", "table"), help="default: table on a terminal, else jsonl")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write here; the suffix .csv means --format csv")
    parser.add_argument("--overwrite", action="store_true", help="replace the file in --out")
    parser.add_argument("--operating-point", metavar="NAME", help="by name (default: the first of the family)")
    parser.add_argument("--budget", type=float, metavar="B", help="the most accurate point with a mean cost within B")
    parser.add_argument("--top", type=int, default=1, metavar="K", help="also the K best classes (default: 1)")
    parser.add_argument("--batch", type=int, default=64, metavar="N", help="images at a time (default: 64)")
    parser.add_argument(
        "--backend",
        metavar="NAME",
        help="onnxruntime (default for a bundle), openvino, torch (default for a run), torch-compiled; or ray: the "
        "default one on every worker of a Ray cluster, for more files than one machine can take",
    )
    parser.add_argument(
        "--variant", metavar="NAME", help="float32 (default), or int8 or bfloat16 where the bundle has it"
    )
    parser.add_argument("--cpus", type=int, metavar="N", help="ray: cores of a worker (default: 1)")
    parser.add_argument("--address", help="ray: the cluster (default: $RAY_ADDRESS, else this machine)")
    parser.add_argument("--threads", type=int, metavar="N", help="of the backend (default: its own choice)")
    parser.add_argument("--abstain-below", type=float, default=0.0, metavar="P", help="withhold less confident answers")
    parser.add_argument("--deepest-exit", type=int, metavar="K", help="nobody goes beyond exit K (from 1)")
    parser.add_argument("--no-resize", action="store_true", help="refuse images of another size than the network's")
    parser.add_argument("--json", action="store_true", help="the same as --format jsonl")
    return parser


def run(words: Sequence[str]) -> int:
    asked = parser().parse_strictly(words)
    _require_consistent(asked)

    from elfnet.cli.progress import FileProgress
    from elfnet.inference.predict_files import Classified, NotRead, classify_files, find_images

    opens = _opens(asked)
    # Here in any case: what cannot be opened is refused before a cluster is asked.
    model = opens()
    files = find_images(asked.images, listed=sys.stdin)
    settings: dict[str, Any] = {"batch": asked.batch, "top": asked.top, "resize": not asked.no_resize}
    failed = named = 0
    with _output(asked.out) as out, FileProgress(shown=not out.isatty()) as progress, ExitStack() as stack:
        writer = _writer(asked, out, model)
        results: Iterator[Classified | NotRead] = classify_files(model, files, **settings)
        if asked.backend == RAY:
            from elfnet.inference.predict_files import classify_on_ray

            on_ray = classify_on_ray(opens, files, cpus=asked.cpus or 1, address=asked.address, **settings)
            results = stack.enter_context(closing(on_ray))
            # Results go to what was standard output before; what Ray has to say is none.
            stack.enter_context(redirect_stdout(sys.stderr))
        for result in results:
            named += 1
            if isinstance(result, Classified):
                writer.write(result)
            else:
                failed += 1
                progress.complain(result.reason)
            progress.step()
    if not named:
        raise WorkError("no image was named on standard input; write one path a line")
    return 1 if failed else 0


def _require_consistent(asked: argparse.Namespace) -> None:
    if asked.operating_point is not None and asked.budget is not None:
        raise RequestError("--operating-point and --budget both choose the point; give one of them")
    if asked.json and asked.format not in (None, "jsonl"):
        raise RequestError(f"--json and --format {asked.format} contradict; give one of them")
    for name in ("cpus", "address"):
        if getattr(asked, name) is not None and asked.backend != RAY:
            raise RequestError(f"--{name} is for --backend ray; leave it out, or give that too")
    for name in ("top", "batch"):
        if getattr(asked, name) < 1:
            raise RequestError(f"--{name} {getattr(asked, name)} must be 1 or more")
    if asked.out is not None and asked.out.exists() and not (asked.overwrite and asked.out.is_file()):
        raise RequestError(f"{asked.out} exists; give --overwrite, or another --out")


def _opens(asked: argparse.Namespace) -> "Callable[[], Model]":
    """What opens the model, here and in the workers of a cluster."""
    settings = {name: getattr(asked, name) for name in ("threads", "deepest_exit", "abstain_below")}
    if asked.backend == RAY:
        settings["threads"] = asked.threads or asked.cpus or 1
    elif asked.backend:
        settings["backend"] = asked.backend
    if asked.variant is not None:
        settings["variant"] = asked.variant
    point = asked.budget if asked.operating_point is None else asked.operating_point
    return partial(_open, asked.model, point, settings)


def _open(path: str, point: str | float | None, settings: dict[str, Any]) -> "Model":
    if (Path(path) / "recipe.toml").is_file():
        if "variant" in settings:
            raise RequestError(
                f"--variant is of a bundle, and {path} is a run; export it with --int8 or --bfloat16 first"
            )
        from elfnet.export.from_run import model_of_run
        from elfnet.run.directory import open_run

        model = model_of_run(open_run(path), **settings)
    else:
        from elfnet.inference.model import load

        model = load(path, **settings)
    if point is not None:
        model.set_operating_point(point)
    return model


def _writer(asked: argparse.Namespace, out: TextIO, model: "Model") -> "Writer":
    from elfnet.cli.output import Columns, Csv, JsonLines

    form = "jsonl" if asked.json else asked.format
    if form is None and asked.out is not None:
        form = "csv" if asked.out.suffix.lower() == ".csv" else "jsonl"
    if form is None:
        form = "table" if out.isatty() else "jsonl"
    top = min(asked.top, len(model.class_names))
    if form == "table":
        return Columns(out, top=top, longest_label=max(map(len, model.class_names)))
    return Csv(out, top=top) if form == "csv" else JsonLines(out, top=top)


@contextmanager
def _output(path: Path | None) -> Iterator[TextIO]:
    """Standard output, or a file that appears when it is complete."""
    if path is None:
        yield sys.stdout
        return
    from elfnet import atomic

    with atomic.replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        yield file
