"""How training went."""

from elfnet.report import number_text as say
from elfnet.report.epoch_log import reweighting_start
from elfnet.report.figure_block import figure_block, figure_grid
from elfnet.report.figures.training_curves import draw_training_curves
from elfnet.report.html_table import Heading, html_table
from elfnet.report.markup import Markup, element, joined
from elfnet.report.run_record import RunRecord


def training(record: RunRecord, key: str) -> Markup:
    """Curves over epochs, and the settings that shaped them."""
    heading = element("h3", "Training")
    if not record.epochs:
        return joined(heading, element("p", "There is no training log in the run directory.", class_="note"))
    epochs = record.epochs
    data = record.info["data"]
    figure = figure_block(
        draw_training_curves(
            [one.epoch for one in epochs],
            loss_S=[one.loss for one in epochs],
            learning_rate_S=[one.learning_rate for one in epochs],
            accuracy_S=[one.calibration_balanced_accuracy for one in epochs],
            reweighting_from=reweighting_start(epochs),
        ),
        f"{key}-training",
        "Training curves",
        f"Loss on the training split (n = {data['train']:,}), learning rate at the end of each epoch, and balanced "
        f"accuracy at full depth on the calibration split (n = {data['calibration']:,}).",
    )
    return joined(heading, figure_grid(figure, _settings(record)))


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
