"""A table as Markdown."""

import re
from collections.abc import Sequence

from elfnet.report.formatting import readable
from elfnet.reproduce.layout import Document, Grid, Heading

# What Markdown, or HTML inside it, would take for its own; tables also end cells at bars.
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#~])")


def markdown_text(text: str) -> str:
    """Text that is shown as it is, in a table or outside."""
    return _SPECIAL.sub(r"\\\1", " ".join(readable(text).split())).replace("&", "&amp;")


def markdown(document: Document) -> str:
    """The page; written by a program, so it says that it is."""
    lines = ["<!-- Written by 'elfnet reproduce' from the records of the runs; do not edit. -->", ""]
    lines += [f"# {markdown_text(document.title)}", ""]
    lines += [f"- {markdown_text(note)}" for note in document.notes]
    for grid in document.grids:
        lines += ["", f"## {markdown_text(grid.title)}", "", *_grid(grid)]
    return "\n".join(lines) + "\n"


def _grid(grid: Grid) -> list[str]:
    lines = [
        _line([markdown_text(_heading(heading)) for heading in grid.headings]),
        _line(["---:" if heading.numeric else "---" for heading in grid.headings]),
    ]
    for position, row in enumerate(grid.rows):
        # There are no lines to draw in Markdown; a row of its own says what begins.
        if position in grid.rules:
            lines.append(_line(["*not in the paper's table:*", *[""] * (len(grid.headings) - 1)]))
        lines.append(_line([markdown_text(text) for text in row]))
    return lines


def _heading(heading: Heading) -> str:
    return f"{heading.group}: {heading.label}" if heading.group else heading.label


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
