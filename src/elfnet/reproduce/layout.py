"""The layout of a table: notes and grids of text, made from the content of table.json.

`render` writes them as Markdown, HTML and LaTeX.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from elfnet.data.long_tail import GROUP_NAMES
from elfnet.report.formatting import DASH
from elfnet.report.html import Heading
from elfnet.reproduce.paper_table import BUDGET_POINTS, FULL_DEPTH, PAPER_RULE, UNTUNED

NOT_RUN = "not run"
NOT_IN_PAPER = "not in the paper's table"
POINT_LABELS = {FULL_DEPTH: "full depth", PAPER_RULE: "one s", "within-1": "per exit", UNTUNED: "untuned"}
QUOTED, DIFFERS = "†", "*"

Content = Mapping[str, Any]
"""table.json, or one of the objects in it."""


@dataclass(frozen=True)
class Grid:
    """A table of texts.

    Attributes:
        rules: indices of rows that have a line above them.
        rule_label: what a plain-text table shows at such a line.
    """

    title: str
    headings: Sequence[Heading]
    rows: Sequence[Sequence[str]]
    rules: frozenset[int] = frozenset()
    rule_label: str = NOT_IN_PAPER


@dataclass(frozen=True)
class Document:
    """A page: notes, then grids."""

    title: str
    notes: Sequence[str] = field(default_factory=tuple)
    grids: Sequence[Grid] = field(default_factory=tuple)


def make_document(table: Content) -> Document:
    """Lay out the content of table.json: notes, an overview like the paper's table, then each column in detail."""
    grids: list[Grid | None] = [overview_grid(table)]
    for column in shown_columns(table):
        grids += [details_grid(table, column), budgets_grid(table, column), differences_grid(table, column)]
    shown = [grid for grid in grids if grid is not None]
    return Document(f"{table['title']} (tier {table['tier']})", _notes(table), shown)


def shown_columns(table: Content) -> list[Content]:
    """Return the columns that have at least one run; all columns if none has."""
    run = {cell["column"] for cell in table["cells"] if cell["n"]}
    return [column for column in table["columns"] if column["name"] in run or not run]


def overview_grid(table: Content) -> Grid:
    """Return one row per system, with our number and the published one for each column."""
    columns = shown_columns(table)
    of_paper = table["source"] == "paper"
    point = PAPER_RULE if of_paper else FULL_DEPTH
    headings = [Heading("system", numeric=False)]
    for column in columns:
        shown = ("ours", "untuned", "paper") if of_paper else ("ours", table["source"])
        headings += [Heading(name, column["label"]) for name in shown]
    rows = []
    for row in table["rows"]:
        cells = [_cell(table, row, column) for column in columns]
        texts = []
        for cell in cells:
            untuned = [_untuned_text(cell)] if of_paper else []
            texts += [_our_text(row, cell, point), *untuned, _paper_text(row, cell)]
        rows.append([row["label"], *texts])
    in_paper = [row["in_paper"] for row in table["rows"]]
    rules = frozenset(i for i in range(1, len(in_paper)) if in_paper[i] != in_paper[i - 1])
    where = "one threshold s for all exits" if of_paper else "full depth"
    title = f"Accuracy in % (mean cost; number of seeds) at {where}"
    return Grid(title, headings, rows, rules, _rule_label(table))


def details_grid(table: Content, column: Content) -> Grid:
    """Return one column: every system at full depth and its operating points, with accuracy by frequency group."""
    groups = GROUP_NAMES if table["has_groups"] else ()
    headings = [Heading("system", numeric=False), Heading("point", numeric=False), Heading("n")]
    headings += [Heading("labels used")]
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
            rows.append([row["label"], NOT_RUN if row["can_run"] else DASH, *[""] * (3 + 1 + len(GROUP_NAMES)), *paper])
            continue
        shown = [name for name in POINT_LABELS if cell["points"].get(name)]
        shown = shown if cell["exits"] > 1 else [name for name in shown if name in (FULL_DEPTH, UNTUNED)]
        compared = PAPER_RULE if PAPER_RULE in shown else FULL_DEPTH
        for name in shown:
            point = cell["points"][name]
            accuracies = [point["accuracy"], *(point["accuracy_by_group"][group] for group in GROUP_NAMES)]
            rows.append(
                [
                    row["label"] if name == shown[0] else "",
                    f"{cell['untuned_setting']}, fixed" if name == UNTUNED else POINT_LABELS[name],
                    str(point["n"]),
                    f"{cell['labels_used'][name]:,}",
                    *(spread_text(accuracy, percent=True) for accuracy in accuracies),
                    spread_text(point["mean_cost"]),
                    *(paper if name == compared else [""] * len(paper)),
                ]
            )
    return Grid(column["label"], headings, rows, frozenset(rules), _rule_label(table))


def budgets_grid(table: Content, column: Content) -> Grid | None:
    """Return one column: systems with exits at equal cost; None if no system has exits."""
    headings = [Heading("system", numeric=False), *(Heading(name.removeprefix("budget=")) for name in BUDGET_POINTS)]
    rows = []
    for row in table["rows"]:
        points = _cell(table, row, column)["points"]
        if any(points.get(name) for name in BUDGET_POINTS):
            rows.append([row["label"], *(_budget_text(points.get(name)) for name in BUDGET_POINTS)])
    title = f"{column['label']}: accuracy in % (mean cost) within a budget, one threshold per exit"
    return Grid(title, headings, rows) if rows else None


def differences_grid(table: Content, column: Content) -> Grid | None:
    """Return one column: differences between pairs of rows; None if no pair is compared."""
    labels = {row["name"]: row["label"] for row in table["rows"]}
    headings = [Heading(name, numeric=False) for name in ("system", "minus", "point")]
    headings += [Heading(name) for name in ("n", "all", *GROUP_NAMES)]
    rows = []
    for pair in table["differences"]:
        if pair["column"] == column["name"]:
            point = POINT_LABELS.get(pair["point"], pair["point"])
            texts = [_difference_text(pair[name]) for name in ("all", *GROUP_NAMES)]
            rows.append([labels[pair["row"]], labels[pair["against"]], point, str(pair["n"]), *texts])
    return Grid(f"{column['label']}: differences of accuracy in percentage points", headings, rows) if rows else None


def spread_text(value: Mapping[str, float | None] | None, *, percent: bool = False) -> str:
    """Format mean ± deviation; a single run has no deviation, and a missing value is a dash."""
    if value is None or value["mean"] is None:
        return DASH
    scale, digits = (100, 1) if percent else (1, 3)
    text = f"{scale * value['mean']:.{digits}f}"
    return text if value["deviation"] is None else f"{text} ± {scale * value['deviation']:.{digits}f}"


def _cell(table: Content, row: Content, column: Content) -> Content:
    found: Content = next(
        cell for cell in table["cells"] if (cell["row"], cell["column"]) == (row["name"], column["name"])
    )
    return found


def _budget_text(point: Content | None) -> str:
    if point is None:
        return DASH
    return f"{spread_text(point['accuracy'], percent=True)} ({point['mean_cost']['mean']:.2f})"


def _difference_text(difference: Mapping[str, float | None] | None) -> str:
    if difference is None:
        return DASH
    percent = {name: 100 * value for name, value in difference.items() if value is not None}
    uncertainty = "± {deviation:.1f}" if "deviation" in percent else "({low:+z.1f} to {high:+z.1f})"
    return ("{mean:+z.1f} " + uncertainty).format(**percent)


def _rule_label(table: Content) -> str:
    return NOT_IN_PAPER if table["source"] == "paper" else "ours"


def _our_text(row: Content, cell: Content, name: str) -> str:
    if cell["state"] == NOT_RUN:
        return NOT_RUN if row["can_run"] else DASH
    point = cell["points"].get(name) or cell["points"][FULL_DEPTH]
    return f"{spread_text(point['accuracy'], percent=True)} ({point['mean_cost']['mean']:.3f}; n = {point['n']})"


def _untuned_text(cell: Content) -> str:
    """The result with nothing chosen on the calibration split; empty if nothing is chosen there, or it is unknown."""
    return _budget_text(cell["points"][UNTUNED]) if cell["points"].get(UNTUNED) else ""


def _paper_text(row: Content, cell: Content) -> str:
    if cell["paper"] is None:
        return DASH
    accuracy, *_, cost = _paper_texts(row, cell, ())
    width = cell["paper"]["width"]
    return f"{accuracy} ({cost})" if width is None else f"{accuracy} (width {width}, {cost})"


def _paper_texts(row: Content, cell: Content, groups: Sequence[str]) -> list[str]:
    paper = cell["paper"]
    if paper is None:
        return [DASH] * (2 + len(groups))
    accuracy = f"{paper['all']:.1f}" + (QUOTED if row["quoted"] else "")
    accuracy += DIFFERS if cell["as_in_paper"] is False else ""
    accuracy += "" if paper["printed"] is None else f" (printed {paper['printed']:.1f})"
    # Four digits where needed: the smallest saving in the paper is 0.01 %.
    cost = f"{paper['cost']:.4f}".removesuffix("0")
    return [accuracy, *(DASH if paper[group] is None else f"{paper[group]:.1f}" for group in groups), cost]


def _notes(table: Content) -> list[str]:
    cells = table["cells"]
    done = [cell for cell in cells if cell["n"]]
    notes = [
        f"{len(done)} of {len(cells)} cells are run, {sum(cell['n'] for cell in cells)} runs in total. "
        'The others show "not run"; no number is entered by hand.',
    ]
    left_out = [column["label"] for column in table["columns"] if column not in shown_columns(table)]
    if left_out:
        notes.append(f"Columns without runs are left out: {'; '.join(left_out)}.")
    if table["tier_text"]:
        notes.append(f"Tier {table['tier']}: {table['tier_text']}.")
    notes += [f"{text}." for text in table["stand_ins"].values()]
    if table["changed_settings"]:
        changed = "; ".join(
            f"{name}={' or '.join(_setting_text(value) for value in values)}"
            for name, values in table["changed_settings"].items()
        )
        notes.append(f"Settings that differ from the recipes of this tier: {changed}.")
    notes += [_shared_training_note(training) for training in table["shared_trainings"]]
    notes += [
        f"{row} runs two batches per training step, one through each branch: training costs twice that of row "
        f"{table['baseline']}. At inference the branches share all but the last block, so that it "
        "costs little more; the paper counts +100 %."
        for row in table["trained_at_double_cost"]
    ]
    notes += _reading_notes(table)
    notes += [f"Made by {text}." for text in table["made_by"]]
    return notes


def _setting_text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _shared_training_note(training: Content) -> str:
    row = training["row"] + ("" if training["runs"] is None else f" ({'; '.join(training['runs'])})")
    epochs = training["epochs"]
    if epochs is None:
        return f"{row} uses the weights of {training['of']}: both have the same training."
    count = "epoch" if epochs == 1 else f"{epochs} epochs"
    return f"{row} shares its first {count} with {training['of']}: the trainings are the same until then."


def _reading_notes(table: Content) -> list[str]:
    images = [
        f"{' or '.join(f'{n:,}' for n in table['test_images'][column['name']])} for {column['label']}"
        for column in table["columns"]
        if table["test_images"][column["name"]]
    ]
    groups = [
        f"many: classes with more than {group['many_above']} training images, few: with fewer than {group['few_below']}"
        for group in table["groups"]
    ]
    baseline = table["baseline"]
    notes = [
        "Accuracy: top-1 on the test split after the last epoch, in %; mean ± sample standard deviation over n seeds."
        + (f" Test images: {'; '.join(images)}." if images else ""),
        "Cost: mean multiply-adds on the test split, including the heads that are run, relative to the plain network "
        f"of row {baseline}.",
        "Operating points, chosen on the calibration split: full depth; one s, the most accurate single threshold for "
        "all exits (the paper's rule); per exit, the cheapest thresholds that lose at most one point of accuracy. A "
        "network with one exit has full depth only. Untuned, fixed: the same network with nothing chosen there.",
        "Labels used: labelled images outside training on which something was chosen (tau, thresholds, scales).",
        _published_note(table),
    ]
    if any(budgets_grid(table, column) for column in table["columns"]):
        notes.append(
            "Budgets are fractions of the cost of a row's own network without exits. The cost in brackets is relative "
            f"to row {baseline}, as everywhere."
        )
    notes += [
        f"{best['row']}, {best['column']}, seed {best['seed']}: the best test epoch has {100 * best['accuracy']:.1f} % "
        f"(epoch {best['epoch'] + 1}); it is selected on test, as some code reports it, and used for nothing else."
        for best in table["best_test_epochs"]
    ]
    if table["best_test_epochs"]:
        crossed = {best["row"]: best.get("cross_fitting", 0) for best in table["best_test_epochs"]}
        chosen = [f"{row} ({folds} networks)" for row, folds in crossed.items() if folds]
        notes.append(
            "Rows with a best test epoch follow data.protocol=ldam-drw: no image is held out, and one s is the largest "
            "candidate, fixed in advance"
            + (f", or estimated by cross-fitting on training images: {', '.join(chosen)}." if chosen else ".")
        )
    if table["differences"]:
        notes.append(
            "Differences compare two rows image by image on the test split. One seed: with the 95 % interval of a "
            "paired bootstrap over test images, which does not include the variation between seeds. Several seeds: "
            "mean ± sample standard deviation."
        )
    if groups:
        notes.append(f"{'; or '.join(groups).capitalize()}.")
    if any(cell["paper"] and cell["paper"]["printed"] is not None for cell in table["cells"]):
        notes.append("Printed: the paper's number is a misprint; the number before it is the intended one.")
    return notes


def _published_note(table: Content) -> str:
    if table["source"] == "paper":
        return (
            f"{QUOTED} The paper takes this number from another paper. {DIFFERS} Not the same experiment as ours: "
            "another tier, data or settings. Rows below the line are not in the paper's table."
        )
    return (
        "Published: results that others report for networks of the given width (channels of the first group) and cost; "
        "compare only networks of the same width. They were trained with more epochs, views or teachers than our rows, "
        "which are below the line."
    )
