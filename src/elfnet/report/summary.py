"""A run in words: what was trained, what it reaches at which cost, and what that does to rare classes."""

from elfnet.data.groups import GROUP_NAMES
from elfnet.report import number_text as say
from elfnet.report.comparison import PointEffect, tail_effect
from elfnet.report.run_record import RunRecord

CHOSEN = ("economic", "accurate")


def summary(record: RunRecord) -> list[str]:
    """Paragraphs of plain text."""
    paragraphs = [_what(record), _accuracy(record)]
    if not record.plain:
        paragraphs += [_tail(record), increasing_loss_verdict(record)]
    return [paragraph for paragraph in paragraphs if paragraph]


def _what(record: RunRecord) -> str:
    data, recipe = record.info["data"], record.recipe
    counts_C = record.class_counts_C
    sizes = record.groups.sizes(counts_C)
    groups = ", ".join(f"{size} {name}" for name, size in zip(GROUP_NAMES, sizes, strict=True))
    ratio = "" if recipe.data.profile in ("none", "counts") else f", imbalance ratio {recipe.data.ratio:g}"
    network = (
        f"{recipe.model.backbone} without early exits"
        if record.plain
        else f"{recipe.model.backbone} with {record.exits} exits"
    )
    done, asked = len(record.epochs), recipe.train.epochs
    length = f"{asked} epochs" if done in (0, asked) else f"{done} of {asked} epochs"
    return (
        f"{recipe.data.source}{ratio}: {len(counts_C)} classes with {counts_C.max():,} down to {counts_C.min():,} "
        f"training images ({groups}; {record.groups.rule}). {data['train']:,} images for training, "
        f"{data['calibration']:,} for calibration, {data['test']:,} for test. "
        f"{network}, trained with {record.method} for {length}."
    )


def _accuracy(record: RunRecord) -> str:
    full = record.at("full")
    plain_cost = say.multiply_adds(record.results.plain_multiply_adds)
    start = (
        f"At full depth it is right on {say.percent(full.accuracy)} % of the {full.n:,} {record.results.split} images"
    )
    if record.plain:
        return f"{start}, at a cost of {say.cost(full.mean_cost)}: {plain_cost} multiply-adds an image."
    heads = ": the heads of all exits count too" if full.mean_cost > 1 else ""
    sentences = [
        f"{start} and costs {say.cost(full.mean_cost)} times the plain backbone's {plain_cost} multiply-adds{heads}."
    ]
    for name in CHOSEN:
        point = record.at(name)
        if record.family.point(name).same_as == "full":
            sentences.append(f"On the calibration split no threshold was better than full depth for the {name} point.")
            continue
        sentences.append(
            f"The {name} point ({record.family.point(name).same_as}) is right on {say.percent(point.accuracy)} % and "
            f"costs {say.cost(point.mean_cost)} on average, {say.versus(point.mean_cost, 'the plain backbone')} and "
            f"{say.versus(point.mean_cost / full.mean_cost, 'full depth')}; {say.cost(point.worst_cost)} at worst."
        )
    return " ".join(sentences)


def _tail(record: RunRecord) -> str:
    effects = {name: tail_effect(record, name) for name in CHOSEN if record.family.point(name).same_as != "full"}
    known = {name: effect for name, effect in effects.items() if effect is not None}
    if not effects:
        return ""
    if not known:
        return "All test images are of one frequency group, so there is no tail to compare with."
    group = next(iter(known.values())).group
    n = record.at("full").n_by_group[group]
    sentences = [f"{name}: {_effect(effect)}" for name, effect in known.items()]
    return f"Rare classes ({group}, n = {n:,}) against full depth. " + " ".join(
        sentence[0].upper() + sentence[1:] for sentence in sentences
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
    return f"{text}: {effect.verdict}."


def increasing_loss_verdict(record: RunRecord) -> str:
    """The paper's increasing-loss property in the last epoch of training."""
    if not record.epochs:
        return ""
    last = record.epochs[-1]
    start = "Increasing loss (who leaves later has the larger loss), last epoch: "
    if last.increasing_loss == "holds":
        return f"{start}holds."
    if last.increasing_loss != "undefined":
        return f"{start}does not hold."
    empty = [str(k) for k, loss in enumerate(last.loss_by_exit, start=1) if loss is None]
    exits = f"exit {empty[0]}" if len(empty) == 1 else f"exits {', '.join(empty[:-1])} and {empty[-1]}" if empty else ""
    why = f"nobody left at {exits}" if empty else "there is one exit only"
    joint = ", as in joint training every example visits every exit" if record.recipe.exits.rule == "all" else ""
    return f"{start}undefined, because {why}{joint}."
