"""elfnet report"""

from collections.abc import Sequence
from pathlib import Path

from elfnet.cli.arguments import Parser
from elfnet.cli.show import console, print_json


def parser() -> Parser:
    parser = Parser(
        "report",
        "Write one self-contained HTML file about one or several runs: tables, curves, class distribution, exits.",
        usage="RUN [RUN ...] [--out FILE]",
        example="elfnet report runs/elf runs/plain --out compare.html",
    )
    parser.add_argument("runs", nargs="+", metavar="run", help="run directories, the main one first")
    parser.add_argument("--out", type=Path, help="the file to write (default: report.html in the first run)")
    parser.add_json_flag()
    return parser


def run(words: Sequence[str]) -> int:
    asked = parser().parse_strictly(words)

    from elfnet.report.write import write_report

    report = write_report(asked.runs, asked.out)
    if asked.json:
        print_json({"report": str(report)})
    else:
        console().print(f"report: {report}", markup=False)
    return 0
