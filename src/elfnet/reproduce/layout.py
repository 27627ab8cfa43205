"""What a table shows, as plain text in cells; how it is written down is the writers' business."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from elfnet.data.long_tail import GROUP_NAMES
from elfnet.report.formatting import DASH
from elfnet.reproduce.shown_points import BUDGETS, COMPARED, FULL

NOT_RUN = "not run"
POINT_LABELS = {FULL: "full depth", COMPARED: "one s", "within-1": "per exit"}
QUOTED, DIFFERS = "†", "*"


@dataclass(frozen=True)
class Heading:
    """A column of a grid, and what stands above it and its neighbours of the same group."""

    label: str
    group: str = ""
    numeric: bool = True


@dataclass(frozen=True)
class Grid:
    """A table of texts.

    Attributes:
        rules: positions of rows before which a line is drawn.
    """

    title: str
    headings: Sequence[Heading]
    rows: Sequence[Sequence[str]]
    rules: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Document:
    """A page: notes, then grids."""

    title: str
    notes: Sequence[str] = field(default_factory=tuple)
    grids: Sequence[Grid] = field(default_factory=tuple)


def shown_columns(table: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The columns in which something is run, so that a page does not consist of "not run"; all, if nothing is."""
    run = {cell["column"] for cell in table["cells"] if cell["n"]}
    return [column for column in table["columns"] if column["name"] in run or not run]


def overview(table: Mapping[str, Any]) -> Grid:
    """One row per system, and for every column our number and the published one."""
    columns = shown_columns(table)
    headings = [Heading("system", numeric=False)]
    for column in columns:
        headings += [Heading("ours", column["label"]), Heading(table["source"], column["label"])]
    rows = []
    for row in table["rows"]:
        cells = [_cell(table, row, column) for column in columns]
        texts = [text for cell in cells for text in (_ours(row, cell), _paper(row, cell))]
        rows.append([row["label"], *texts])
    title = "Accuracy in % (mean cost; number of seeds) at one threshold s for all exits"
    return Grid(title, headings, rows, _rules([row["in_paper"] for row in table["rows"]]))


def details(table: Mapping[str, Any], column: Mapping[str, Any]) -> Grid:
    """One column: every system at full depth and at its operating points, with accuracy by frequency group."""
    groups = GROUP_NAMES if table["has_groups"] else ()
    headings = [Heading("system", numeric=False), Heading("point", numeric=False), Heading("n")]
    headings += [Heading(name, "ours") for name in ("all", *GROUP_NAMES, "cost")]
    headings += [Heading(name, table["source"]) for name in ("all", *groups, "cost")]
    rows: list[list[str]] = []
    rules = set()
    for position, row in enumerate(table["rows"]):
        if position and row["in_paper"] != table["rows"][position - 1]["in_paper"]:
            rules.add(len(rows))
        cell = _cell(table, row, column)
        paper = _paper_texts(row, cell, groups)
        if cell["state"] == NOT_RUN:
            rows.append([row["label"], NOT_RUN if row["can_run"] else DASH, *[""] * (2 + 1 + len(GROUP_NAMES)), *paper])
            continue
        shown = [name for name in POINT_LABELS if cell["points"].get(name)]
        shown = shown if cell["exits"] > 1 else shown[:1]
        beside = COMPARED if COMPARED in shown else FULL
        for name in shown:
            point = cell["points"][name]
            figures = [point["accuracy"], *(point["accuracy_by_group"][group] for group in GROUP_NAMES)]
            rows.append(
                [
                    row["label"] if name == shown[0] else "",
                    POINT_LABELS[name],
                    str(point["n"]),
                    *(spread_text(figure, percent=True) for figure in figures),
                    spread_text(point["mean_cost"]),
                    *(paper if name == beside else [""] * len(paper)),
                ]
            )
    return Grid(column["label"], headings, rows, frozenset(rules))


def within_budgets(table: Mapping[str, Any], column: Mapping[str, Any]) -> Grid | None:
    """One column: systems with exits at equal cost; None if there are none."""
    headings = [Heading("system", numeric=False), *(Heading(name.removeprefix("budget=")) for name in BUDGETS)]
    rows = []
    for row in table["rows"]:
        points = _cell(table, row, column)["points"]
        if any(points.get(name) for name in BUDGETS):
            rows.append([row["label"], *(_at_cost(points.get(name)) for name in BUDGETS)])
    title = f"{column['label']}: accuracy in % (mean cost) within a budget, thresholds per exit"
    return Grid(title, headings, rows) if rows else None


def differences(table: Mapping[str, Any], column: Mapping[str, Any]) -> Grid | None:
    """One column: rows against each other, image by image; None if there is nothing to compare."""
    labels = {row["name"]: row["label"] for row in table["rows"]}
    headings = [Heading(name, numeric=False) for name in ("system", "minus", "point")]
    headings += [Heading(name) for name in ("n", "all", *GROUP_NAMES)]
    rows = []
    for found in table["differences"]:
        if found["column"] == column["name"]:
            point = POINT_LABELS.get(found["point"], found["point"])
            figures = [_difference_text(found[name]) for name in ("all", *GROUP_NAMES)]
            rows.append([labels[found["row"]], labels[found["against"]], point, str(found["n"]), *figures])
    return Grid(f"{column['label']}: differences in points of accuracy", headings, rows) if rows else None


def _at_cost(point: Mapping[str, Any] | None) -> str:
    if point is None:
        return DASH
    return f"{spread_text(point['accuracy'], percent=True)} ({point['mean_cost']['mean']:.2f})"


def _difference_text(figure: Mapping[str, float | None] | None) -> str:
    if figure is None:
        return DASH
    percent = {name: 100 * value for name, value in figure.items() if value is not None}
    beside = "± {deviation:.1f}" if "deviation" in percent else "({low:+z.1f} to {high:+z.1f})"
    return ("{mean:+z.1f} " + beside).format(**percent)


def spread_text(figure: Mapping[str, float | None] | None, *, percent: bool = False) -> str:
    """Mean ± deviation; a single run has no deviation, and a group without examples no number."""
    if figure is None or figure["mean"] is None:
        return DASH
    scale, digits = (100, 1) if percent else (1, 3)
    text = f"{scale * figure['mean']:.{digits}f}"
    return text if figure["deviation"] is None else f"{text} ± {scale * figure['deviation']:.{digits}f}"


def _cell(table: Mapping[str, Any], row: Mapping[str, Any], column: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = next(
        cell for cell in table["cells"] if (cell["row"], cell["column"]) == (row["name"], column["name"])
    )
    return found


def _ours(row: Mapping[str, Any], cell: Mapping[str, Any]) -> str:
    if cell["state"] == NOT_RUN:
        return NOT_RUN if row["can_run"] else DASH
    point = cell["points"].get(COMPARED) or cell["points"][FULL]
    return f"{spread_text(point['accuracy'], percent=True)} ({point['mean_cost']['mean']:.3f}; n = {point['n']})"


def _paper(row: Mapping[str, Any], cell: Mapping[str, Any]) -> str:
    if cell["paper"] is None:
        return DASH
    accuracy, *_, cost = _paper_texts(row, cell, ())
    width = cell["paper"]["width"]
    return f"{accuracy} ({cost})" if width is None else f"{accuracy} (width {width}, {cost})"


def _paper_texts(row: Mapping[str, Any], cell: Mapping[str, Any], groups: Sequence[str]) -> list[str]:
    paper = cell["paper"]
    if paper is None:
        return [DASH] * (2 + len(groups))
    accuracy = f"{paper['all']:.1f}" + (QUOTED if row["quoted"] else "")
    accuracy += DIFFERS if cell["as_in_paper"] is False else ""
    accuracy += "" if paper["printed"] is None else f" (printed {paper['printed']:.1f})"
    # Three digits would hide the smallest saving that the paper claims.
    cost = f"{paper['cost']:.4f}".removesuffix("0")
    return [accuracy, *(DASH if paper[group] is None else f"{paper[group]:.1f}" for group in groups), cost]


def _rules(in_paper: Sequence[bool]) -> frozenset[int]:
    return frozenset(i for i in range(1, len(in_paper)) if in_paper[i] != in_paper[i - 1])
