"""elfnet report"""

from collections.abc import Sequence
from pathlib import Path

from elfnet.cli.arguments import Parser
from elfnet.cli.show import console, print_json


def parser() -> Parser:
    parser = Parser(
        "report",
        "Write one self-contained HTML file about one or several runs: summary, a slider for the budget, tables and\n"
        "figures. With --figures, write every figure as a PNG and an SVG file too.",
        usage="RUN [RUN ...] [--out FILE] [--figures DIR] [--no-images]",
        example="elfnet report runs/elf runs/plain --out compare.html --figures figures",
    )
    parser.add_argument("runs", nargs="+", metavar="run", help="run directories, the main one first")
    parser.add_argument("--out", type=Path, help="the file to write (default: report.html in the first run)")
    parser.add_argument("--figures", type=Path, metavar="DIR", help="also write every figure there, as PNG and SVG")
    parser.add_argument("--no-images", action="store_true", help="show no images of the test split")
    parser.add_json_flag()
    return parser


def run(words: Sequence[str]) -> int:
    asked = parser().parse_strictly(words)

    from elfnet.report.figures.catalogue import write_figures
    from elfnet.report.page import write_report

    with_images = not asked.no_images
    report = write_report(asked.runs, asked.out, with_images=with_images)
    drawn = None if asked.figures is None else write_figures(asked.runs, asked.figures, with_images=with_images)
    if asked.json:
        figures = {} if drawn is None else {"figures": [str(file) for file in drawn.files], "left_out": drawn.left_out}
        print_json({"report": str(report), **figures})
        return 0
    screen = console()
    screen.print(f"report: {report}", markup=False)
    if drawn is not None:
        screen.print(f"figures: {len(drawn.files)} files in {asked.figures}", markup=False)
        for reason in drawn.left_out:
            screen.print(f"not drawn: {reason}", markup=False)
    return 0
