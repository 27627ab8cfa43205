"""`elfnet report`: one HTML file about runs, and their figures."""

from collections.abc import Sequence
from pathlib import Path

from elfnet.cli.arguments import Parser
from elfnet.cli.output import console, print_json


def parser() -> Parser:
    parser = Parser(
        "report",
        "Write one self-contained HTML file about one or several runs: summary, budget slider, tables and figures.\n"
        "With --figures, also write every figure as a PNG and an SVG file.",
        usage="RUN [RUN ...] [--out FILE] [--figures DIR] [--no-images]",
        example="elfnet report runs/elf runs/plain --out compare.html --figures figures",
    )
    parser.add_argument(
        "runs", nargs="+", metavar="run", help="run directories; the others are compared with the first"
    )
    parser.add_argument("--out", type=Path, help="file to write (default: report.html in the first run)")
    parser.add_argument("--figures", type=Path, metavar="DIR", help="also write every figure to DIR, as PNG and SVG")
    parser.add_argument("--no-images", action="store_true", help="show no images of the test split")
    parser.add_json_flag()
    return parser


def run(words: Sequence[str]) -> int:
    args = parser().parse_strictly(words)

    from elfnet.report import write_figures, write_report

    with_images = not args.no_images
    report = write_report(args.runs, args.out, with_images=with_images)
    drawn = None if args.figures is None else write_figures(args.runs, args.figures, with_images=with_images)
    if args.json:
        figures = {} if drawn is None else {"figures": [str(file) for file in drawn.files], "left_out": drawn.left_out}
        print_json({"report": str(report), **figures})
        return 0
    screen = console()
    screen.print(f"report: {report}", markup=False)
    if drawn is not None:
        screen.print(f"figures: {len(drawn.files)} files in {args.figures}", markup=False)
        for reason in drawn.left_out:
            screen.print(f"not drawn: {reason}", markup=False)
    return 0
