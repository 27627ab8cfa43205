"""Checks for settings that contradict each other. Every message names the settings, the reason and the way out."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from elfnet.recipe.schema import Recipe

ADJUSTED_LOSSES = ("balanced-softmax", "logit-adjusted")
"""Losses that correct for the class counts themselves."""

AUTOMATIC_SETTINGS = (
    "data.cross_fitting",
    "data.image_size",
    "data.fit",
    "data.augment",
    "data.min_crop_area",
    "data.colour_jitter",
    "data.normalise",
    "data.workers",
    "model.backbone",
    "model.head_filters",
    "train.batch_size",
    "train.compile",
    "train.epochs",
)
"""Settings that can be chosen from the data."""


def check_automatic(names: Sequence[str]) -> None:
    """Check that every setting in `train.automatic` can be chosen from the data.

    Raises:
        ValueError: For the first one that cannot.
    """
    for name in names:
        if name not in AUTOMATIC_SETTINGS:
            raise ValueError(
                f"train.automatic has {name}, which cannot be chosen from the data; choose from: "
                f"{', '.join(AUTOMATIC_SETTINGS)}"
            )


def check_compatible(recipe: "Recipe") -> None:
    """Check that the settings of a recipe are compatible.

    Raises:
        ValueError: For the first contradiction; pydantic turns it into a ValidationError.
    """
    for check in (
        _check_model_and_training,
        _check_best_epoch,
        _check_class_weights,
        _check_losses,
        _check_mixing,
        _check_refit,
        _check_branches,
        _check_experts,
        _check_protocol,
        _check_cross_fitting,
    ):
        check(recipe)


def _check_model_and_training(recipe: "Recipe") -> None:
    if recipe.criterion.loss == "ldam" and recipe.model.head != "cosine":
        raise ValueError("criterion.loss=ldam needs a cosine classifier: set model.head=cosine")
    if recipe.train.backbone_lr_factor == 0 and not recipe.model.weights:
        raise ValueError(
            "train.backbone_lr_factor=0 freezes a backbone with random weights; set model.weights, or another factor"
        )
    if recipe.exits.after_exit == "drop" and not recipe.model.exits:
        raise ValueError(
            "exits.after_exit=drop needs a network with exits: set model.exits=true or exits.after_exit=mask"
        )
    if recipe.train.batch_size % recipe.train.accumulate:
        raise ValueError(
            f"train.accumulate={recipe.train.accumulate} does not divide train.batch_size={recipe.train.batch_size}"
            "; choose a divisor of the batch size"
        )
    if recipe.train.nesterov and (recipe.train.optimizer != "sgd" or recipe.train.momentum == 0):
        raise ValueError(
            f"train.nesterov=true is for SGD with momentum, not for train.optimizer={recipe.train.optimizer} with "
            f"train.momentum={recipe.train.momentum:g}; set train.nesterov=false, or train.optimizer=sgd and "
            "train.momentum above 0"
        )
    if recipe.train.schedule == "one-cycle" and recipe.train.warmup_epochs == 0:
        raise ValueError(
            "train.schedule=one-cycle needs a warm-up: set train.warmup_epochs, to about a third of "
            "train.schedule_epochs"
        )
    if recipe.train.schedule == "one-cycle" and recipe.train.lr_update == "epoch":
        raise ValueError("train.schedule=one-cycle changes the rate in every step: set train.lr_update=step")
    if recipe.train.prune:
        prune = f"train.prune={recipe.train.prune:g}"
        if not recipe.model.exits or recipe.exits.rule != "elf":
            raise ValueError(f"{prune} needs examples that exit in training: set model.exits=true and exits.rule=elf")
        if recipe.data.sampler != "shuffle":
            raise ValueError(
                f"{prune} and data.sampler={recipe.data.sampler} both choose examples: set data.sampler=shuffle"
            )
        train = recipe.train
        if train.prune_patience >= min(train.prune_until * train.epochs, train.epochs - 1):
            raise ValueError(
                f"{prune} leaves out nothing in train.epochs={train.epochs}: no example is easy before "
                f"train.prune_patience={train.prune_patience} epochs, and all are shown from train.prune_until="
                f"{train.prune_until:g} of the epochs on, and in the last; lower train.prune_patience, or set "
                "train.prune=0"
            )
    if recipe.train.sync_batch_norm and recipe.exits.after_exit == "drop":
        raise ValueError("train.sync_batch_norm=true needs all stages on every device: set exits.after_exit=mask")


def _check_best_epoch(recipe: "Recipe") -> None:
    """Early stopping and the best epoch need a calibration split that is scored, and one owner of the weights."""
    train = recipe.train
    chosen = f"train.patience={train.patience}" if train.patience else "train.keep=best" if train.keep == "best" else ""
    if not chosen:
        return
    if recipe.data.protocol == "ldam-drw" or recipe.data.cross_fitting:
        data = recipe.data
        without = f"cross_fitting={data.cross_fitting}" if data.cross_fitting else "protocol=ldam-drw"
        raise ValueError(f"{chosen} needs a calibration split, which data.{without} does not have; leave it out")
    if train.patience and train.patience < train.evaluate_every:
        raise ValueError(
            f"{chosen} ends the training before the next evaluation; set it to train.evaluate_every="
            f"{train.evaluate_every} or more"
        )
    if train.patience and recipe.refit.method == "balanced":
        raise ValueError(f"{chosen} is for a training of one stage; leave it out, or set refit.method=none")
    if train.keep == "best" and train.ema_decay:
        raise ValueError("train.keep=best and train.ema_decay both choose the weights to evaluate; set one of them")


def _check_class_weights(recipe: "Recipe") -> None:
    if recipe.criterion.reweight != "none" and recipe.train.drw_start >= recipe.train.schedule_epochs:
        raise ValueError(
            f"train.drw_start={recipe.train.drw_start} is never reached in "
            f"train.schedule_epochs={recipe.train.schedule_epochs}; lower it, or set criterion.reweight=none"
        )


def _check_losses(recipe: "Recipe") -> None:
    criterion, loss = recipe.criterion, recipe.criterion.loss
    if criterion.label_smoothing and loss not in ("ce", *ADJUSTED_LOSSES):
        raise ValueError(
            f"criterion.label_smoothing={criterion.label_smoothing:g} is for cross-entropy, and criterion.loss={loss}; "
            "set it to 0, or criterion.loss=ce"
        )
    if loss in ADJUSTED_LOSSES and criterion.reweight != "none":
        raise ValueError(
            f"criterion.loss={loss} and criterion.reweight={criterion.reweight} both correct for the class counts; "
            "set criterion.reweight=none, or criterion.loss=ce"
        )
    if loss in ADJUSTED_LOSSES and recipe.data.sampler != "shuffle":
        raise ValueError(
            f"criterion.loss={loss} and data.sampler={recipe.data.sampler} both correct for the class counts; "
            "set data.sampler=shuffle, or criterion.loss=ce"
        )
    if (criterion.exit_weights or criterion.distil) and not recipe.model.exits:
        raise ValueError("criterion.exit_weights and criterion.distil need exits: set model.exits=true")
    if criterion.equilibrium and not recipe.model.exits:
        raise ValueError(
            "criterion.equilibrium=true balances the gradients of several exits, and model.exits=false has one; "
            "set model.exits=true or criterion.equilibrium=false"
        )
    if criterion.equilibrium and recipe.train.backbone_lr_factor == 0:
        raise ValueError(
            "criterion.equilibrium=true scales gradients of the backbone, and train.backbone_lr_factor=0 freezes it; "
            "set criterion.equilibrium=false, or another factor"
        )
    if criterion.distil and recipe.exits.after_exit == "drop":
        raise ValueError(
            "criterion.distil needs the logits of the last exit for every example, and exits.after_exit=drop does not "
            "compute them; set exits.after_exit=mask"
        )


def _check_mixing(recipe: "Recipe") -> None:
    train = recipe.train
    if train.mix in ("cutmix", "cmo") and recipe.data.source == "features":
        raise ValueError(
            f"train.mix={train.mix} pastes a patch of an image, and data.source=features has feature rows; "
            "set train.mix=mixup or train.mix=none"
        )
    if train.mix != "none" and 2 * train.mix_off_epochs >= train.epochs:
        raise ValueError(
            f"train.mix_off_epochs={train.mix_off_epochs} leaves none of train.epochs={train.epochs} for "
            f"train.mix={train.mix}; lower it"
        )
    if (
        train.prune
        and train.mix != "none"
        and train.mix_probability == 1
        and train.mix_off_epochs < train.prune_patience
    ):
        raise ValueError(
            f"train.prune={train.prune:g} judges examples by epochs without mixing, and train.mix={train.mix} leaves "
            f"{train.mix_off_epochs} at the start; set train.mix_off_epochs to train.prune_patience="
            f"{train.prune_patience} or more, or train.mix_probability below 1"
        )
    if train.mix == "manifold" and recipe.model.exits:
        raise ValueError(
            "train.mix=manifold mixes features at a random depth, and exits before it would see unmixed features; set "
            "model.exits=false or train.mix=mixup"
        )
    if train.mix == "manifold" and train.accumulate > 1:
        raise ValueError("train.mix=manifold pairs images of the whole batch: set train.accumulate=1")


def _check_branches(recipe: "Recipe") -> None:
    if recipe.model.branches == 1:
        return
    wanted = {
        "model.exits=false": not recipe.model.exits,
        "model.weights to an empty value": not recipe.model.weights,
        "train.mix=none": recipe.train.mix == "none",
        "train.accumulate=1": recipe.train.accumulate == 1,
        "data.sampler=shuffle": recipe.data.sampler == "shuffle",
        "criterion.reweight=none": recipe.criterion.reweight == "none",
    }
    for setting, holds in wanted.items():
        if not holds:
            raise ValueError(f"model.branches=2 uses a separate sampler and loss per branch: set {setting}")


def _check_experts(recipe: "Recipe") -> None:
    experts = recipe.model.experts
    if experts == 1:
        return
    for holds, reason in (
        (recipe.model.branches == 1, "and model.branches=2 both repeat the end of the network: set one of them to 1"),
        (recipe.model.exits, "need exits: set model.exits=true"),
        (not recipe.model.weights, "have separate initial weights: leave model.weights out, or set model.experts=1"),
        (not recipe.criterion.distil, "have no single last exit to distil from: set criterion.distil=0"),
    ):
        if not holds:
            raise ValueError(f"model.experts={experts}: experts {reason}")


def _check_protocol(recipe: "Recipe") -> None:
    if recipe.data.protocol != "ldam-drw" or recipe.data.cross_fitting:
        return
    for holds, setting, way_out in (
        (
            recipe.exits.logit_adjustment == "off",
            f"exits.logit_adjustment={recipe.exits.logit_adjustment}",
            "set it to off",
        ),
        (
            recipe.refit.method not in ("tau-norm", "logit-adjustment") or len(recipe.refit.taus) == 1,
            f"refit.method={recipe.refit.method}",
            "give one tau, such as --refit.taus 1",
        ),
    ):
        if not holds:
            raise ValueError(
                f"{setting} chooses tau on calibration images, and data.protocol=ldam-drw has none; {way_out}"
            )


def _check_cross_fitting(recipe: "Recipe") -> None:
    method = recipe.refit.method
    if recipe.data.cross_fitting and (recipe.refit.run or method not in ("none", "balanced")):
        raise ValueError(
            f"data.cross_fitting={recipe.data.cross_fitting} trains networks of its own, and refit.method={method} "
            "starts from a finished run; set data.cross_fitting=0"
        )


def _check_refit(recipe: "Recipe") -> None:
    method, model = recipe.refit.method, recipe.model
    if method == "none" and recipe.refit.run:
        raise ValueError(
            f"--from (refit.run) names {recipe.refit.run}, but refit.method=none does not start from a run; leave it "
            "out, or choose a method that starts from a run, such as crt"
        )
    if (model.head == "scaled") is not (method == "lws"):
        raise ValueError(
            f"model.head={model.head} and refit.method={method}: scaled classifiers are for LWS only; set "
            "refit.method=lws and model.head=scaled, or neither"
        )
    if recipe.refit.batch_norm == "train" and method not in ("crt", "lws"):
        raise ValueError(f"refit.batch_norm=train is for refit.method=crt or lws, not {method}; leave it out")
    _check_second_stage(recipe)
    if method == "none":
        return
    # A second stage of the same run follows a first stage that may use initial weights and a slower backbone.
    starts_from_run = method != "balanced" or bool(recipe.refit.run)
    any_head = method in ("balanced", "crt")
    for holds, reason in (
        (not (starts_from_run and model.weights), "starts from the weights of a run: leave model.weights out"),
        (
            model.branches == 1,
            "refits classifiers of one branch, and BBN has two branches: set model.branches=1",
        ),
        (
            not starts_from_run or recipe.train.backbone_lr_factor == 1,
            "does not train the backbone: leave train.backbone_lr_factor out",
        ),
        (any_head or model.head != "cosine", _NOT_FOR_COSINES.get(method, _NO_REGRESSION)),
    ):
        if not holds:
            raise ValueError(f"refit.method={method} {reason}")


def _check_second_stage(recipe: "Recipe") -> None:
    refit = recipe.refit
    if refit.method == "balanced":
        return
    why = "has no second stage" if refit.method == "none" else "refits the classifiers in another way"
    for holds, setting, way_out in (
        (refit.epochs == 0, f"refit.epochs={refit.epochs}", "set refit.epochs=0"),
        (refit.head == "auto", f"refit.head={refit.head}", "set refit.head=auto"),
    ):
        if not holds:
            raise ValueError(
                f"{setting} is for refit.method=balanced, and refit.method={refit.method} {why}; {way_out}, or set "
                "refit.method=balanced"
            )


_NOT_FOR_COSINES = {
    "tau-norm": "normalises weights, and those of a cosine classifier are normalised already; start from a run with "
    "model.head=linear",
    "logit-adjustment": "changes biases, and a cosine classifier has none; start from a run with model.head=linear",
}
_NO_REGRESSION = (
    "fits unnormalised weights and a bias, and a cosine classifier has neither; start from a run with model.head=linear"
)
