"""`elfnet export`: write the bundle of a run, and print how it compares with torch."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elfnet.cli.arguments import Parser
from elfnet.cli.output import console, print_json

if TYPE_CHECKING:
    from elfnet.export.run import Exported


def parser() -> Parser:
    parser = Parser(
        "export",
        "Export a run to one file that runs without torch: one ONNX graph per stage with its head, weights, classes,\n"
        "preprocessing, operating points and hashes. The graphs are checked against torch first.",
        usage="RUN [--out PATH] [--directory] [--int8] [--bfloat16] [--overwrite] [--json]",
        example="elfnet export runs/elf --out elf.elfnet",
    )
    parser.add_argument("run", help="a calibrated run directory")
    parser.add_argument("--out", type=Path, help="bundle to write (default: NAME.elfnet in the run directory)")
    parser.add_argument("--directory", action="store_true", help="write a directory instead of one zip")
    parser.add_argument("--overwrite", action="store_true", help="replace the bundle in --out")
    parser.add_argument(
        "--int8",
        action="store_true",
        help="also write an int8 variant; refused if slower or 0.5 points less accurate",
    )
    parser.add_argument("--bfloat16", action="store_true", help="also write a bfloat16 variant (backend: openvino)")
    parser.add_json_flag()
    return parser


def run(words: Sequence[str]) -> int:
    args = parser().parse_strictly(words)

    from elfnet.export.run import export_run
    from elfnet.run.directory import open_run

    precisions = [name for name in ("int8", "bfloat16") if getattr(args, name)]
    exported = export_run(
        open_run(args.run),
        args.out,
        as_directory=args.directory,
        overwrite=args.overwrite,
        precisions=precisions,
    )
    if args.json:
        print_json(_summary(exported))
        return 0
    _show(exported)
    return 0


def _summary(exported: "Exported") -> dict[str, Any]:
    from elfnet.inference.bundle.manifest_file import identity_of

    return {
        "bundle": str(exported.path),
        "bytes": exported.bytes_on_disk,
        "identity": identity_of(exported.manifest),
        "variants": {
            name: None if variant.measured is None else variant.measured.model_dump(mode="json")
            for name, variant in exported.manifest.variants.items()
        },
    }


def _show(exported: "Exported") -> None:
    screen = console()
    for name, variant in exported.manifest.variants.items():
        measured = variant.measured
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
            f"{name}: {len(variant.graphs)} stages; compared with torch on {parity.images} {parity.split} images at "
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
    screen.print(f"bundle: {exported.path} ({exported.bytes_on_disk / 1e6:.2f} MB)", markup=False, soft_wrap=True)
