"""Writing a table: the same content four times."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from elfnet import atomic
from elfnet.reproduce.document import document_of
from elfnet.reproduce.html_page import html_page
from elfnet.reproduce.latex import latex
from elfnet.reproduce.markdown import markdown


def write_table(table: Mapping[str, Any], root: Path) -> None:
    """table.json, and table.md, table.html and table.tex made from it."""
    document = document_of(table)
    atomic.write_json(root / "table.json", table)
    for name, write in (("table.md", markdown), ("table.html", html_page), ("table.tex", latex)):
        atomic.write_text(root / name, write(document))
