"""A run in words: what was trained, what it reaches at which cost, and what that does to rare classes."""

from elfnet.calibrate.family import MULTIPLY_ADDS
from elfnet.data.groups import GROUP_NAMES
from elfnet.recipe.stages import total_epochs
from elfnet.report import number_text as say
from elfnet.report.comparison import PointEffect, tail_effect
from elfnet.report.run_record import RunRecord

CHOSEN = ("economic", "accurate")


def summary(record: RunRecord) -> dict[str, str]:
    """Paragraphs of plain text, by what they are about."""
    paragraphs = {"Data": _data(record), "Network": _network(record), "Accuracy and cost": _accuracy(record)}
    if not record.plain:
        paragraphs |= {"Rare classes": _tail(record), "Increasing loss": increasing_loss_verdict(record)}
    return {about: text for about, text in paragraphs.items() if text}


def _data(record: RunRecord) -> str:
    data, recipe = record.info["data"], record.recipe
    counts_C = record.class_counts_C
    sizes = record.groups.sizes(counts_C)
    groups = ", ".join(f"{size} {name}" for name, size in zip(GROUP_NAMES, sizes, strict=True))
    ratio = "" if recipe.data.profile in ("none", "counts") else f", imbalance ratio {recipe.data.ratio:g}"
    return (
        f"{recipe.data.source}{ratio}: {len(counts_C)} classes with {counts_C.max():,} down to {counts_C.min():,} "
        f"training images ({groups}; {record.groups.rule}). {data['train']:,} images for training, "
        f"{data['calibration']:,} for calibration, {data['test']:,} for test."
    )


def _network(record: RunRecord) -> str:
    recipe = record.recipe
    network = (
        f"{recipe.model.backbone} without early exits"
        if record.plain
        else f"{recipe.model.backbone} with {record.exits} exits"
    )
    done, asked = len(record.epochs), total_epochs(recipe)
    length = f"{asked} epochs" if done in (0, asked) else f"{done} of {asked} epochs"
    return f"{network}, trained with {record.method} for {length}."


def _accuracy(record: RunRecord) -> str:
    full = record.at("full")
    plain_cost = say.multiply_adds(record.results.plain_multiply_adds)
    start = (
        f"At full depth it is right on {say.percent(full.accuracy)} % of the {full.n:,} {record.results.split} images"
    )
    if record.plain:
        return f"{start}, at a cost of {say.cost(full.mean_cost)}: {plain_cost} multiply-adds an image."
    heads = ": the heads of all exits count too" if full.mean_cost > 1 else ""
    what = f"times the plain backbone's {plain_cost} multiply-adds"
    if record.results.cost_unit != MULTIPLY_ADDS:
        what = f"in {record.results.cost_unit}"
    sentences = [f"{start} and costs {say.cost(full.mean_cost)} {what}{heads}."]
    for chosen, names in _chosen(record).items():
        point = record.at(chosen)
        who = f"The {names[0]} point" if len(names) == 1 else f"The {' and the '.join(names)} point alike"
        if chosen == "full":
            sentences.append(f"{who} is full depth: on the calibration split no threshold was better.")
            continue
        sentences.append(
            f"{who} ({chosen}) is right on {say.percent(point.accuracy)} % and "
            f"costs {say.cost(point.mean_cost)} on average, {_versus(point.mean_cost, full.mean_cost)}; "
            f"{say.cost(point.worst_cost)} at worst."
        )
    return " ".join(sentences)


def _versus(cost: float, full: float) -> str:
    """Full depth runs no early head, so that it mostly costs what the plain backbone does."""
    if say.cost(full) == say.cost(1.0):
        return say.versus(cost, "full depth")
    return f"{say.versus(cost, 'the plain backbone')} and {say.versus(cost / full, 'full depth')}"


def _chosen(record: RunRecord) -> dict[str, list[str]]:
    """The candidates that were chosen, each with what for: often one is both."""
    chosen: dict[str, list[str]] = {}
    for name in CHOSEN:
        chosen.setdefault(record.family.point(name).same_as or name, []).append(name)
    return chosen


def _tail(record: RunRecord) -> str:
    effects = {
        " and the ".join(names): tail_effect(record, chosen)
        for chosen, names in _chosen(record).items()
        if chosen != "full"
    }
    known = {names: effect for names, effect in effects.items() if effect is not None}
    if not effects:
        return ""
    if not known:
        return "All test images are of one frequency group, so there is no tail to compare with."
    group = next(iter(known.values())).group
    n = record.at("full").n_by_group[group]
    sentences = [f"at the {names} point {_effect(effect)}" for names, effect in known.items()]
    return (
        f"The rarest group with test images is “{group}” (n = {n:,}). Against full depth, " + "; ".join(sentences) + "."
    )


def _effect(effect: PointEffect) -> str:
    text = (
        f"{say.percent(effect.full)} → {say.percent(effect.early)} %, {say.signed_points(effect.early - effect.full)} "
        f"points"
    )
    if effect.difference is not None:
        text += (
            f" (95 % interval {say.signed_points(effect.difference.low)} to "
            f"{say.signed_points(effect.difference.high)})"
        )
    return f"{text}: {effect.verdict}"


def increasing_loss_verdict(record: RunRecord) -> str:
    """The paper's increasing-loss property in the last epoch of training."""
    if not record.epochs:
        return ""
    last = record.epochs[-1]
    start = "Training examples that leave later have the larger average loss: in the last epoch this"
    if last.increasing_loss == "holds":
        return f"{start} holds."
    if last.increasing_loss != "undefined":
        return f"{start} does not hold."
    empty = [str(k) for k, loss in enumerate(last.loss_by_exit, start=1) if loss is None]
    exits = f"exit {empty[0]}" if len(empty) == 1 else f"exits {', '.join(empty[:-1])} and {empty[-1]}" if empty else ""
    why = f"nobody left at {exits}" if empty else "there is one exit only"
    joint = ", as in joint training every example visits every exit" if record.recipe.exits.rule == "all" else ""
    return f"{start} is undefined, because {why}{joint}."
