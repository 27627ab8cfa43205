"""Predictions as text, one line a file: JSON lines, CSV, or columns for people. Nothing is held back."""

import csv
import json
from typing import Protocol, TextIO

from elfnet.cli.show import DASH
from elfnet.deploy.classify_files import Classified
from elfnet.deploy.model import Prediction

FORMATS = ("jsonl", "csv", "table")

# What spreadsheets take for a formula at the start of a cell.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class Writer(Protocol):
    def write(self, result: Classified) -> None: ...


class JsonLines:
    """One object a line, ASCII only, so that any file name survives."""

    def __init__(self, out: TextIO, *, top: int) -> None:
        self._out, self._top = out, top

    def write(self, result: Classified) -> None:
        found = result.prediction
        record: dict[str, object] = {
            "file": result.file,
            "label": found.label,
            "class_index": found.class_index,
            "confidence": found.confidence,
            "exit": found.exit,
            "cost": found.cost,
        }
        if self._top > 1:
            record["top"] = [{"label": label, "probability": probability} for label, probability in found.top]
        self._out.write(json.dumps(record, allow_nan=False) + "\n")


class Csv:
    """With a header line; an answer that was withheld is an empty cell."""

    def __init__(self, out: TextIO, *, top: int) -> None:
        self._rows, self._top = csv.writer(out, lineterminator="\n"), top if top > 1 else 0
        ranked = [f"top_{rank}_{what}" for rank in range(1, self._top + 1) for what in ("label", "probability")]
        self._rows.writerow(["file", "label", "class_index", "confidence", "exit", "cost", *ranked])

    def write(self, result: Classified) -> None:
        found = result.prediction
        # The same file under a name that no spreadsheet computes.
        file = f"./{result.file}" if result.file.startswith(_FORMULA) else result.file
        ranked: list[object] = [cell for pair in found.top for cell in pair] if self._top else []
        ranked += [""] * (2 * self._top - len(ranked))
        index = "" if found.class_index is None else found.class_index
        self._rows.writerow(
            [_writable(file), found.label or "", index, found.confidence, found.exit, found.cost, *ranked]
        )


class Columns:
    """For a terminal; the file name comes last, as it may be of any length."""

    def __init__(self, out: TextIO, *, top: int, longest_label: int) -> None:
        self._out, self._top = out, top
        self._width = max(5, min(30, longest_label))
        self._out.write(f"{'label':<{self._width}}  {'conf.':>6}  exit   cost  file\n")

    def write(self, result: Classified) -> None:
        found = result.prediction
        label = (DASH if found.label is None else found.label)[: self._width]
        file = "".join(character if character.isprintable() else "?" for character in result.file)
        self._out.write(
            f"{label:<{self._width}}  {found.confidence:6.3f}  {found.exit:>4}  {found.cost:5.3f}  {_writable(file)}"
            f"{self._others(found)}\n"
        )

    def _others(self, found: Prediction) -> str:
        if self._top == 1:
            return ""
        return "  " + ", ".join(f"{label} {probability:.3f}" for label, probability in found.top)


def _writable(name: str) -> str:
    """A file name that is no valid text is shown with replacement characters."""
    return name.encode(errors="surrogateescape").decode(errors="replace")
