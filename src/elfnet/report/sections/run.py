"""The part of the page about one run, from the cards on top to the provenance at the end."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import tomli_w

from elfnet.recipe.stages import total_epochs
from elfnet.report import formatting as fmt
from elfnet.report.figures.architecture import architecture
from elfnet.report.figures.confusion import confused_images, confusion_figure
from elfnet.report.figures.exits import exit_shares_at_points
from elfnet.report.figures.gallery import images_by_exit
from elfnet.report.figures.trade_off import accuracy_against_cost, cost_histogram
from elfnet.report.figures.training import training_curves
from elfnet.report.html import Cell, FigureGrid, Heading, Table
from elfnet.report.record import RunRecord
from elfnet.report.sections.points import (
    OperatingPoints,
    class_figures,
    exit_figures,
    exit_table,
    operating_points,
)
from elfnet.report.sections.slider import Slider, budget_slider
from elfnet.report.summary import summary
from elfnet.report.svg import figure_grid
from elfnet.run.log import reweighting_start
from elfnet.run.results import same_points


@dataclass(frozen=True)
class Card:
    """Accuracy and cost of one operating point.

    Attributes:
        balanced_accuracy: empty if it equals the accuracy.
        time: milliseconds per image; empty if times were not measured.
    """

    name: str
    accuracy: str
    balanced_accuracy: str
    cost: str
    time: str
    note: str


@dataclass(frozen=True, kw_only=True)
class RunSection:
    """The part of the page about one run; `templates/run.html` shows it.

    Attributes:
        key: id of the part, and prefix of all ids in it.
        summary: paragraphs of text by topic.
        recipe: the recipe as TOML.
    """

    key: str
    name: str
    title: str
    source: str
    network: str
    plain: bool
    cards: tuple[Card, ...]
    summary: Mapping[str, str]
    slider: Slider | None
    points: OperatingPoints
    trade_off: FigureGrid | None
    exit_table: Table
    exit_figures: FigureGrid
    classes: FigureGrid
    confusion: FigureGrid
    gallery: FigureGrid | None
    training: FigureGrid
    provenance: Table
    recipe: str


def run_section(record: RunRecord, key: str, *, with_images: bool) -> RunSection:
    """Build all that the page shows about one run.

    Args:
        key: id of the part of the page.
        with_images: show images of the test split.
    """
    trade_off = gallery = None
    if not record.plain:
        trade_off = figure_grid(
            key, accuracy_against_cost(record), cost_histogram(record), exit_shares_at_points(record)
        )
        gallery = figure_grid(key, images_by_exit(record)) if with_images else None
    settings = [_settings(record)] if record.epochs else []
    return RunSection(
        key=key,
        name=record.name,
        title=f"{record.name}: {record.method}",
        source=record.recipe.data.source,
        network=record.network,
        plain=record.plain,
        cards=_cards(record),
        summary=summary(record),
        slider=budget_slider([record], key),
        points=operating_points(record),
        trade_off=trade_off,
        exit_table=exit_table(record),
        exit_figures=exit_figures(record, key),
        classes=class_figures(record, key),
        confusion=figure_grid(key, confusion_figure(record), *([confused_images(record)] if with_images else [])),
        gallery=gallery,
        training=figure_grid(key, architecture(record), *settings, training_curves(record)),
        provenance=_provenance(record),
        recipe=tomli_w.dumps(record.recipe.model_dump(mode="json")),
    )


def _cards(record: RunRecord) -> tuple[Card, ...]:
    """One card for all points that do the same."""
    leading = record.leading_points()
    same = same_points({name: record.results.points[name] for name in leading})
    return tuple(_card(record, names, "; ".join(leading[name] for name in names)) for names in same.values())


def _card(record: RunRecord, names: Sequence[str], meaning: str) -> Card:
    point, time = record.at(names[0]), record.milliseconds(names[0])
    accuracy, balanced = fmt.percent(point.accuracy), fmt.percent(point.balanced_accuracy)
    return Card(
        name=", ".join(names),
        accuracy=accuracy,
        balanced_accuracy="" if balanced == accuracy else balanced,
        cost=fmt.cost(point.mean_cost),
        time="" if time is None else fmt.milliseconds(time),
        note="a plain network" if record.plain else meaning,
    )


def _settings(record: RunRecord) -> Table:
    """Return the main settings of the training and how it ended."""
    recipe, switch = record.recipe, reweighting_start(record.epochs)
    weights = recipe.criterion.reweight
    if weights == "none":
        weighting = "none"
    elif switch is None:
        weighting = (
            f"{weights}, from the first epoch on" if record.epochs[0].weights != "none" else f"{weights}, not reached"
        )
    else:
        weighting = f"{weights}, from epoch {switch}"
    rows = [
        ("method", record.method),
        ("epochs", f"{len(record.epochs)} of {total_epochs(recipe)}"),
        ("batch size", f"{recipe.train.batch_size}"),
        ("learning rate", f"{recipe.train.lr:g}, momentum {recipe.train.momentum:g}"),
        ("weight decay", f"{recipe.train.weight_decay:g}"),
        ("class weights", weighting),
        ("final training loss", fmt.number(record.epochs[-1].loss)),
        ("wall time", fmt.duration(sum(epoch.seconds for epoch in record.epochs))),
    ]
    if not record.plain:
        rule = (
            f"exit at confidence > {recipe.exits.train_threshold} ({recipe.exits.after_exit})"
            if recipe.exits.rule == "elf"
            else "all examples visit all exits"
        )
        rows.insert(1, ("exit rule in training", rule))
    headings = [Heading("setting", numeric=False), Heading("value", numeric=False)]
    return Table(headings=headings, rows=rows, caption="Main settings.")


def _provenance(record: RunRecord) -> Table:
    """Return what is needed to repeat the run: command, versions, hardware, seeds, data and checkpoint."""
    info, results, family = record.info, record.results, record.family
    shape = " × ".join(map(str, info.data.image_shape))
    scales = ", ".join(f"{scale:g}" for scale in dict.fromkeys(family.confidence_scale))
    rows: list[tuple[str, Cell | str]] = [
        ("command", Cell(info.command, code=True)),
        ("versions", _listed(info.versions)),
        ("hardware", _listed(info.hardware.to_json())),
        ("machine settings", _listed(info.machine.to_json())),
        ("seeds", _listed(info.seeds.to_json())),
        ("data", f"{record.recipe.data.source}, images of {shape}"),
        ("data fingerprint", Cell(info.data.fingerprint, code=True)),
        ("checkpoint (sha256)", Cell(results.checkpoint_sha256, code=True)),
        ("training split", f"n = {info.data.train:,}"),
        ("thresholds chosen on", family.chosen_on),
        ("results measured on", f"{results.split} split, n = {results.n:,}"),
        ("confidence scale of the paper's rule", scales),
        (
            "unit of cost",
            f"{results.cost_unit}; the plain backbone has {results.plain_multiply_adds:,} multiply-adds per image",
        ),
    ]
    return Table(headings=[Heading("what", numeric=False), Heading("value", numeric=False)], rows=rows)


def _listed(facts: Mapping[str, object]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {_word(value)}" for name, value in facts.items()) or fmt.DASH


def _word(value: object) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
