"""The network, and how training went."""

from elfnet.report import formatting as say
from elfnet.report.figure_block import figure_blocks
from elfnet.report.figures.architecture import architecture
from elfnet.report.figures.training import training_curves
from elfnet.report.html_table import Heading, html_table
from elfnet.report.markup import Markup, element, joined
from elfnet.report.record import RunRecord
from elfnet.report.run_files import reweighting_start


def training(record: RunRecord, key: str) -> Markup:
    """Curves over epochs, the settings that shaped them, and the network that was trained."""
    settings = _settings(record) if record.epochs else Markup("")
    figures = figure_blocks(key, architecture(record), settings, training_curves(record))
    return joined(element("h3", "Network and training"), figures)


def _settings(record: RunRecord) -> Markup:
    recipe, switch = record.recipe, reweighting_start(record.epochs)
    weights = recipe.criterion.reweight
    if weights == "none":
        weighting = "none"
    elif switch is None:
        weighting = f"{weights}, from the start" if record.epochs[0].weights != "none" else f"{weights}, not reached"
    else:
        weighting = f"{weights}, from epoch {switch}"
    rows: list[tuple[str, str]] = [
        ("method", record.method),
        ("epochs", f"{len(record.epochs)} of {recipe.train.epochs}"),
        ("batch size", f"{recipe.train.batch_size}"),
        ("learning rate", f"{recipe.train.lr:g}, momentum {recipe.train.momentum:g}"),
        ("weight decay", f"{recipe.train.weight_decay:g}"),
        ("class weights", weighting),
        ("final training loss", say.number(record.epochs[-1].loss)),
        ("wall time", say.duration(sum(one.seconds for one in record.epochs))),
    ]
    if not record.plain:
        leaving = (
            f"leave at confidence > {recipe.exits.train_threshold} ({recipe.exits.left})"
            if recipe.exits.rule == "elf"
            else "everyone visits every exit"
        )
        rows.insert(1, ("exit rule in training", leaving))
    return html_table("The run in short.", [Heading("setting", numeric=False), Heading("value", numeric=False)], rows)
