"""`elfnet export`: write the file of a run, and print how it compares with torch."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elfnet.cli.arguments import Parser
from elfnet.cli.output import console, print_json
from elfnet.errors import RequestError

if TYPE_CHECKING:
    from elfnet.export.web import WebRuntime
    from elfnet.inference.bundle.manifest import Measured


def parser() -> Parser:
    parser = Parser(
        "export",
        "Export a run to one standard ONNX file that stops early and runs without torch. It holds the network, the\n"
        "classes, preprocessing, operating points and a hash, and is checked against torch first.",
        usage="RUN [--out FILE] [--int8] [--bfloat16] [--default-point NAME] [--web DIR] [--overwrite] [--json]",
        example="elfnet export runs/elf --out elf.onnx",
    )
    parser.add_argument("run", help="a calibrated run directory")
    parser.add_argument("--out", type=Path, help="file to write (default: NAME.onnx in the run directory)")
    parser.add_argument("--overwrite", action="store_true", help="replace what is in --out")
    parser.add_argument(
        "--int8",
        action="store_true",
        help="also write NAME-int8.onnx; refused if slower or 0.5 points less accurate",
    )
    parser.add_argument("--bfloat16", action="store_true", help="also fit points for bfloat16 (backend: openvino)")
    parser.add_argument(
        "--default-point",
        metavar="NAME",
        help="operating point for clients that give none (default: accurate, or the most accurate that stops early)",
    )
    parser.add_argument(
        "--required-inputs",
        action="store_true",
        help="no default inputs, as ONNX Runtime in Node and browsers needs it",
    )
    parser.add_argument(
        "--image-input",
        choices=("uint8", "float32"),
        default="uint8",
        help="images as in a file (default), or normalised by the caller: N x channels x height x width",
    )
    parser.add_argument("--triton", type=Path, metavar="DIR", help="also write a model repository for Triton")
    parser.add_argument(
        "--web",
        type=Path,
        metavar="DIR",
        help="also write a folder for a web server: the visitor's browser classifies",
    )
    parser.add_argument(
        "--onnxruntime-web",
        type=Path,
        metavar="PACKAGE",
        help="for --web: the npm package, as in node_modules/onnxruntime-web, from which the runtime is copied",
    )
    parser.add_json_flag()
    return parser


def run(words: Sequence[str]) -> int:
    args = parser().parse_strictly(words)
    if args.triton is not None and (args.required_inputs or args.image_input != "uint8"):
        raise RequestError("--triton needs default inputs and uint8 images; leave out the other options of the inputs")
    web_runtime = _read_web_runtime(args)
    precisions = [name for name in ("int8", "bfloat16") if getattr(args, name)]
    if args.out is not None and args.out.suffix == ".elfnet":
        raise RequestError(f"--out {args.out}: an export is one ONNX file; name it NAME.onnx")
    from elfnet.export.run import default_path, export_run
    from elfnet.run.directory import open_run

    opened = open_run(args.run)
    if opened.recipe().data.source == "features" and (args.web is not None or args.triton is not None):
        option = "--web" if args.web is not None else "--triton"
        raise RequestError(f"{option} is for images, and {args.run} was trained on feature rows; leave it out")
    if args.triton is not None:
        from elfnet.export.triton import require_free

        require_free(args.triton, (args.out or default_path(opened)).stem, overwrite=args.overwrite)
    exported = export_run(
        opened,
        args.out,
        overwrite=args.overwrite,
        precisions=precisions,
        default_point=args.default_point,
        required_inputs=args.required_inputs,
        image_input=args.image_input,
    )
    models = _write_triton(exported.path, args) if args.triton is not None else []
    site_bytes = None if web_runtime is None else _write_site(exported.path, web_runtime, args)
    files = [exported] if exported.int8 is None else [exported, exported.int8]
    measured = {name: variant.measured for file in files for name, variant in file.manifest.variants.items()}
    if args.json:
        print_json(
            {
                "bundle": str(exported.path),
                "bytes": exported.bytes_on_disk,
                "identity": exported.identity,
                **({} if exported.int8 is None else {"int8_bundle": str(exported.int8.path)}),
                **({"triton_models": [str(model) for model in models]} if models else {}),
                **({} if site_bytes is None else {"web": str(args.web), "web_bytes": site_bytes}),
                "variants": _as_json(measured),
            }
        )
        return 0
    _show(measured, len(exported.manifest.multiply_adds.stages))
    for file in files:
        _show_file(file.path, file.bytes_on_disk)
    for model in models:
        console().print(f"Triton model: {model}", markup=False, soft_wrap=True)
    if site_bytes is not None:
        console().print(
            f"web page: {args.web} ({site_bytes / 1e6:.1f} MB); "
            f"'python -m http.server --directory {args.web}' shows it at http://localhost:8000",
            markup=False,
            soft_wrap=True,
        )
    return 0


def _read_web_runtime(args: Any) -> "WebRuntime | None":
    """Check what --web needs before the export, which takes a while."""
    if args.web is None:
        if args.onnxruntime_web is not None:
            raise RequestError("--onnxruntime-web is for a page; give --web DIR as well")
        return None
    from elfnet.export.web import INSTALL, read_web_runtime, require_free

    if args.image_input != "uint8":
        raise RequestError("--web needs uint8 images; leave out --image-input")
    if args.onnxruntime_web is None:
        raise RequestError(f"--web copies ONNX Runtime Web; name it with --onnxruntime-web PACKAGE; {INSTALL}")
    require_free(args.web, overwrite=args.overwrite)
    return read_web_runtime(args.onnxruntime_web)


def _write_site(path: Path, runtime: "WebRuntime", args: Any) -> int:
    from elfnet.export.web import write_site
    from elfnet.inference.bundle.one_file import open_one_file

    return write_site(open_one_file(path), args.web, runtime, path.stem, overwrite=args.overwrite)


def _write_triton(path: Path, args: Any) -> list[Path]:
    from elfnet.export.triton import write_repository
    from elfnet.inference.bundle.one_file import open_one_file

    return write_repository(open_one_file(path), args.triton, path.stem, overwrite=args.overwrite)


def _as_json(measured: "Mapping[str, Measured | None]") -> dict[str, Any]:
    return {name: None if found is None else found.model_dump(mode="json") for name, found in measured.items()}


def _show_file(path: Path, size: int) -> None:
    console().print(f"bundle: {path} ({size / 1e6:.2f} MB)", markup=False, soft_wrap=True)


def _show(measured_by_name: "Mapping[str, Measured | None]", stages: int) -> None:
    screen = console()
    for name, measured in measured_by_name.items():
        if measured is None:
            continue
        if measured.against_float32 is not None:
            against = measured.against_float32
            ratios = ", ".join(f"{ratio:.2f} at batch {size}" for size, ratio in against.time_ratio.items())
            screen.print(
                f"{name}: {100 * against.accuracy:.1f} % at full depth on {against.images} calibration images, float32 "
                f"{100 * against.accuracy_float32:.1f} %; processor time relative to it on {against.backend}: {ratios}",
                markup=False,
                soft_wrap=True,
            )
        parity = measured.parity
        if parity is None:
            continue
        differ = sum(point.differ for point in parity.points.values())
        edge = sum(point.on_the_edge for point in parity.points.values())
        screen.print(
            f"{name}: {stages} stages; compared with torch on {parity.images} {parity.split} images at "
            f"{len(parity.points)} operating points: logits differ by {max(parity.largest_difference):.1e} at most, "
            f"{differ} predictions or exits differ ({edge} within 1e-4 of a threshold)",
            markup=False,
            soft_wrap=True,
        )
        memory = measured.peak_memory
        if memory is not None and memory.bytes is not None:
            screen.print(
                f"{name}: peak memory {memory.bytes / 1e6:.0f} MB for a batch of {memory.batch} images", markup=False
            )
