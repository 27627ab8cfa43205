"""A table as LaTeX, to be read into a document that has booktabs and adjustbox."""

from collections.abc import Sequence
from itertools import groupby

from elfnet.report.formatting import readable
from elfnet.reproduce.layout import Document, Grid

_ESCAPES = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "%": r"\%",
    "#": r"\#",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"$<$",
    ">": r"$>$",
    "|": r"$|$",
    '"': r"\textquotedbl{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "τ": r"$\tau$",
    "†": r"$^\dagger$",
    "–": "--",
    "−": "$-$",
    "√": r"$\surd$",
    "\ufffd": "?",
}
_ESCAPE = str.maketrans(_ESCAPES)


def latex_text(text: str) -> str:
    """Text that is set as it is; letters of other scripts are left to the engine (XeLaTeX, LuaLaTeX)."""
    return " ".join(readable(text).split()).translate(_ESCAPE)


def latex(document: Document) -> str:
    """One floating table a grid, made smaller where it is wider than the line or higher than the page."""
    lines = [
        "% Written by 'elfnet reproduce' from the records of the runs; do not edit.",
        r"% Needs \usepackage{booktabs,adjustbox} and, for the quotation marks, \usepackage[T1]{fontenc}.",
        rf"\subsection*{{{latex_text(document.title)}}}",
        r"\begin{itemize}",
        *(rf"  \item {latex_text(note)}" for note in document.notes),
        r"\end{itemize}",
    ]
    for grid in document.grids:
        lines += ["", *_grid(grid)]
    return "\n".join(lines) + "\n"


def _grid(grid: Grid) -> list[str]:
    columns = "".join("r" if heading.numeric else "l" for heading in grid.headings)
    rows = []
    for position, row in enumerate(grid.rows):
        rows += [r"\midrule"] if position in grid.rules else []
        rows.append(_line([latex_text(text) for text in row]))
    return [
        r"\begin{table}[htbp]",
        r"\footnotesize\setlength{\tabcolsep}{3pt}",
        rf"\caption{{{latex_text(grid.title)}}}",
        r"\begin{adjustbox}{max totalsize={\linewidth}{0.9\textheight},center}",
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        *_group_lines(grid),
        _line([latex_text(heading.label) for heading in grid.headings]),
        r"\midrule",
        *rows,
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{adjustbox}",
        r"\end{table}",
    ]


def _group_lines(grid: Grid) -> list[str]:
    if not any(heading.group for heading in grid.headings):
        return []
    cells, rules, first = [], [], 1
    for group, members in groupby(grid.headings, key=lambda heading: heading.group):
        span = len(list(members))
        if group:
            cells.append(rf"\multicolumn{{{span}}}{{c}}{{{latex_text(group)}}}")
            rules.append(rf"\cmidrule(lr){{{first}-{first + span - 1}}}")
        else:
            cells += [""] * span
        first += span
    return [_line(cells), "".join(rules)]


def _line(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"
