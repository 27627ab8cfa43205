"""The whole page of a table: what was run, how to read it, the paper's layout, then every column in detail."""

from collections.abc import Mapping
from typing import Any

from elfnet.reproduce.layout import (
    DIFFERS,
    QUOTED,
    Document,
    Grid,
    details,
    differences,
    overview,
    shown_columns,
    within_budgets,
)


def document_of(table: Mapping[str, Any]) -> Document:
    """The content of table.json, arranged for people."""
    grids: list[Grid | None] = [overview(table)]
    for column in shown_columns(table):
        grids += [details(table, column), within_budgets(table, column), differences(table, column)]
    shown = [grid for grid in grids if grid is not None]
    return Document(f"{table['title']} (tier {table['tier']})", _notes(table), shown)


def _notes(table: Mapping[str, Any]) -> list[str]:
    cells = table["cells"]
    done = [cell for cell in cells if cell["n"]]
    notes = [
        f"{len(done)} of {len(cells)} cells are run, {sum(cell['n'] for cell in cells)} runs in all. "
        'The others say "not run"; no number is filled in by hand.',
    ]
    left_out = [column["label"] for column in table["columns"] if column not in shown_columns(table)]
    if left_out:
        notes.append(f"Columns in which nothing is run are left out: {'; '.join(left_out)}.")
    if table["tier_text"]:
        notes.append(f"Tier {table['tier']}: {table['tier_text']}.")
    notes += [f"{text}." for text in table["stand_ins"].values()]
    if table["changed_settings"]:
        changed = "; ".join(
            f"{name}={' or '.join(_value(value) for value in values)}"
            for name, values in table["changed_settings"].items()
        )
        notes.append(f"Settings changed from the recipes of this tier: {changed}.")
    notes += [_shared(training) for training in table["shared_trainings"]]
    notes += [
        f"{row} runs two batches per training step, one through each branch: training costs twice that of row "
        f"{table['baseline']}. At "
        "inference, where the branches share all but the last block and the classifier, it costs little more; the "
        "paper counts +100 %."
        for row in table["trained_at_double_cost"]
    ]
    notes += _how_to_read(table)
    notes += [f"Made by {text}." for text in table["made_by"]]
    return notes


def _shared(training: Mapping[str, Any]) -> str:
    row = training["row"] + ("" if training["runs"] is None else f" ({'; '.join(training['runs'])})")
    if training["epochs"] is None:
        return f"{row} has the weights of {training['of']}: its own training would differ in nothing."
    return f"{row} has its first {training['epochs']} epochs from {training['of']}: its own would differ in nothing."


def _how_to_read(table: Mapping[str, Any]) -> list[str]:
    images = [
        f"{' or '.join(f'{n:,}' for n in table['test_images'][column['name']])} for {column['label']}"
        for column in table["columns"]
        if table["test_images"][column["name"]]
    ]
    groups = [
        f"many: classes of more than {group['many_above']} training images, few: of fewer than {group['few_below']}"
        for group in table["groups"]
    ]
    baseline = table["baseline"]
    notes = [
        "Accuracy: top-1 on the test split in %, of the last epoch; mean ± sample standard deviation over n seeds."
        + (f" Test images: {'; '.join(images)}." if images else ""),
        "Cost: mean multiply-adds over the test split, heads that are run included, relative to the plain network of "
        f"row {baseline}.",
        "Points, chosen on the calibration split: full depth; one s, the most accurate threshold for all exits, which "
        "is the paper's rule; per exit, the cheapest thresholds that lose at most one point there. A network with one "
        "exit has nothing to choose.",
        _about_published(table),
    ]
    if any(within_budgets(table, column) for column in table["columns"]):
        notes.append(
            "Budgets are shares of what a row's own network costs without exits; the cost beside an accuracy is, as "
            f"everywhere, relative to row {baseline}."
        )
    if table["differences"]:
        notes.append(
            "Differences compare two rows image by image on the test split. Of one seed: with the 95 % interval of a "
            "paired bootstrap, which says what other test images would change, not what another seed would. Of "
            "several: mean ± sample standard deviation."
        )
    if groups:
        notes.append(f"{'; or '.join(groups).capitalize()}.")
    if any(cell["paper"] and cell["paper"]["printed"] is not None for cell in table["cells"]):
        notes.append("Printed: what the paper prints, where that is a misprint; the number before it is what is meant.")
    return notes


def _about_published(table: Mapping[str, Any]) -> str:
    if table["source"] == "paper":
        return (
            f"{QUOTED} The paper takes this number from another paper. {DIFFERS} Not the same experiment as ours: "
            "another tier, data or settings. Rows below the line are not in the paper's table."
        )
    return (
        "Published: what others report for networks of the width (channels of the first group) and cost that stand "
        "beside; compare only within a width. They were trained with more epochs, views or teachers than the rows "
        "below the line, which are ours."
    )


def _value(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
