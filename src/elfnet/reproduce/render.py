"""A laid-out table as Markdown, LaTeX and HTML, and the files of a table."""

import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from elfnet import atomic
from elfnet.report.formatting import readable
from elfnet.report.html import Heading, Table, render
from elfnet.reproduce.layout import Document, Grid, make_document

# Characters with a meaning in Markdown, in its tables, or in HTML inside it.
_MARKDOWN_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#~])")


def markdown_text(text: str) -> str:
    """Escape text for Markdown, inside or outside of tables."""
    return _MARKDOWN_SPECIAL.sub(r"\\\1", " ".join(readable(text).split())).replace("&", "&amp;")


def to_markdown(document: Document) -> str:
    """Return the page as Markdown."""
    lines = ["<!-- Written by 'elfnet reproduce' from the records of the runs; do not edit. -->", ""]
    lines += [f"# {markdown_text(document.title)}", ""]
    lines += [f"- {markdown_text(note)}" for note in document.notes]
    for grid in document.grids:
        lines += ["", f"## {markdown_text(grid.title)}", "", *_markdown_grid(grid)]
    return "\n".join(lines) + "\n"


def _markdown_grid(grid: Grid) -> list[str]:
    lines = [
        _markdown_line([markdown_text(_markdown_heading(heading)) for heading in grid.headings]),
        _markdown_line(["---:" if heading.numeric else "---" for heading in grid.headings]),
    ]
    for position, row in enumerate(grid.rows):
        # Markdown has no lines between rows.
        if position in grid.rules:
            lines.append(_markdown_line([f"*{grid.rule_label}:*", *[""] * (len(grid.headings) - 1)]))
        lines.append(_markdown_line([markdown_text(text) for text in row]))
    return lines


def _markdown_heading(heading: Heading) -> str:
    return f"{heading.group}: {heading.label}" if heading.group else heading.label


def _markdown_line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


_LATEX_ESCAPES = str.maketrans(
    {
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
)


def latex_text(text: str) -> str:
    """Escape text for LaTeX. Letters of other scripts need XeLaTeX or LuaLaTeX."""
    return " ".join(readable(text).split()).translate(_LATEX_ESCAPES)


def to_latex(document: Document) -> str:
    """Return the page as LaTeX, for a document that loads booktabs and adjustbox.

    Each grid is a floating table, scaled down if it is wider than the line or higher than the page.
    """
    lines = [
        "% Written by 'elfnet reproduce' from the records of the runs; do not edit.",
        r"% Needs \usepackage{booktabs,adjustbox} and, for the quotation marks, \usepackage[T1]{fontenc}.",
        rf"\subsection*{{{latex_text(document.title)}}}",
        r"\begin{itemize}",
        *(rf"  \item {latex_text(note)}" for note in document.notes),
        r"\end{itemize}",
    ]
    for grid in document.grids:
        lines += ["", *_latex_grid(grid)]
    return "\n".join(lines) + "\n"


def _latex_grid(grid: Grid) -> list[str]:
    columns = "".join("r" if heading.numeric else "l" for heading in grid.headings)
    rows = []
    for position, row in enumerate(grid.rows):
        rows += [r"\midrule"] if position in grid.rules else []
        rows.append(_latex_line([latex_text(text) for text in row]))
    return [
        r"\begin{table}[htbp]",
        r"\footnotesize\setlength{\tabcolsep}{3pt}",
        rf"\caption{{{latex_text(grid.title)}}}",
        r"\begin{adjustbox}{max totalsize={\linewidth}{0.9\textheight},center}",
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        *_latex_group_lines(grid),
        _latex_line([latex_text(heading.label) for heading in grid.headings]),
        r"\midrule",
        *rows,
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{adjustbox}",
        r"\end{table}",
    ]


def _latex_group_lines(grid: Grid) -> list[str]:
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
    return [_latex_line(cells), "".join(rules)]


def _latex_line(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def to_html(document: Document) -> str:
    """Return the page as one HTML file that loads nothing else, in the style of reports."""
    sections = [
        (grid.title, Table(headings=grid.headings, rows=grid.rows, emphasised=grid.rules)) for grid in document.grids
    ]
    return render("tables.html", title=document.title, notes=document.notes, sections=sections, script=None)


def write_table(table: Mapping[str, Any], root: Path) -> None:
    """Write table.json, table.md, table.html and table.tex.

    Args:
        table: the content of table.json.
        root: the table's directory.
    """
    document = make_document(table)
    atomic.write_json(root / "table.json", table)
    for name, convert in (("table.md", to_markdown), ("table.html", to_html), ("table.tex", to_latex)):
        atomic.write_text(root / name, convert(document))
