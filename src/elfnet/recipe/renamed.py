"""Renamed settings.

An old name in a user's recipe file or flag is refused, and the message names the new one. Files that elfnet wrote (the
recipe of a run, the record of a table) are translated on reading, so that a run of an earlier version can be resumed
and its record is recognised.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Renamed:
    """The replacement of an old setting.

    Attributes:
        new: Dotted name of the setting that replaces it.
        convert: Turns a stored value into the equivalent settings by dotted name; None keeps the value.
    """

    new: str
    convert: Callable[[Any], dict[str, Any]] | None = None

    def settings(self, value: Any) -> dict[str, Any]:
        """The new settings, by dotted name, that are equivalent to the old one with this value."""
        return {self.new: value} if self.convert is None else self.convert(value)


def _policy_of_randaugment(operations: int) -> dict[str, Any]:
    if operations == 0:
        return {"data.policy": "none"}
    return {"data.policy": "randaugment", "data.randaugment_operations": operations}


RENAMED: dict[str, Renamed] = {
    "criterion.ldam_scale": Renamed("criterion.cosine_scale"),
    "data.most_megabytes": Renamed("data.max_megabytes"),
    "data.most_megapixels": Renamed("data.max_megapixels"),
    "data.randaugment": Renamed("data.policy", _policy_of_randaugment),
    "data.smallest_share": Renamed("data.min_crop_area"),
    "exits.left": Renamed("exits.after_exit"),
    "refit.how": Renamed("refit.method"),
}
"""Replacements by old dotted name."""


_BY_MEANING: dict[str, tuple[str, ...]] = {
    "train.optimizer": ("optimiser", "optim", "opt"),
    "train.lr": ("learning_rate", "rate", "base_lr"),
    "train.batch_size": ("batch", "bs", "minibatch"),
    "train.epochs": ("num_epochs", "n_epochs", "max_epochs", "iterations", "steps"),
    "train.hours": ("time", "max_time", "budget", "minutes", "max_hours"),
    "train.weight_decay": ("wd", "l2", "decay"),
    "train.schedule": ("scheduler", "lr_schedule", "lr_scheduler"),
    "train.ema_decay": ("ema", "averaging", "swa"),
    "train.mix": ("mixup", "cutmix"),
    "train.precision": ("amp", "fp16", "bf16", "half", "mixed_precision"),
    "train.seed": ("random_state", "random_seed"),
    "data.image_size": ("size", "img_size", "imgsz", "resolution", "input_size", "crop_size"),
    "data.root": ("data", "dataset", "dir", "folder", "path", "data_dir", "images", "image_dir"),
    "data.workers": ("num_workers", "loader_workers", "threads_loader"),
    "data.augment": ("augmentation", "aug", "transforms", "flip"),
    "data.calibration": ("val", "valid", "validation", "dev"),
    "data.ratio": ("imbalance", "imbalance_ratio", "imb_factor"),
    "model.backbone": ("arch", "architecture", "network", "net", "model"),
    "model.weights": ("pretrained", "checkpoint", "init", "initial_weights"),
    "model.weights_licence": ("licence", "license", "weights_license"),
    "train.patience": ("patience", "early_stopping", "early_stop", "early_stopping_patience"),
    "train.keep": ("save_best", "restore_best_weights", "load_best_model_at_end", "best"),
    "criterion.label_smoothing": ("smoothing", "label_smooth", "smooth"),
    "criterion.loss": ("loss", "criterion", "loss_function"),
    "criterion.reweight": ("class_weights", "class_weight", "weights_per_class"),
}
_NO_HINT = ("refit.method",)
"""Settings whose names have another meaning without their section."""

_NO_SETTING = {
    (
        "dropout",
        "drop_rate",
    ): "dropout is fixed in mlp and in heads of kind grid; criterion.label_smoothing, train.weight_decay, "
    "data.augment and data.policy regularise",
    ("gpu", "gpus", "num_gpus"): "use --devices for the number of GPUs, or train.device",
    ("clip", "clip_grad", "grad_clip", "gradient_clip", "max_grad_norm"): "gradients are not clipped",
    (
        "method",
        "recipe",
    ): "the method is part of the name of the recipe, such as elfnet train folder/ce; see 'elfnet recipes ls'",
    ("num_classes", "n_classes", "nclasses", "classes", "num_labels"): "the classes follow from the data; leave it out",
    ("output_dir", "save_dir", "run_dir", "out_dir"): "the run directory is --out",
}


def hint_by_meaning(name: str) -> str | None:
    """A hint for a setting that has another name here, or none; None if the name means nothing known.

    Example:
        >>> hint_by_meaning("train.optimiser")
        'it is called train.optimizer'
    """
    if (setting := setting_by_meaning(name)) is not None:
        return f"it is called {setting}"
    return no_setting(name)


def no_setting(name: str) -> str | None:
    """The way out for a name that is none of a setting; None if the name means nothing known."""
    # A setting of this name, such as refit.method, is meant where its section is given.
    if name in _NO_HINT:
        return None
    return next((text for words, text in _NO_SETTING.items() if _word(name) in words), None)


def setting_by_meaning(name: str) -> str | None:
    """The setting that has another name elsewhere, by its dotted name; None if the name means nothing known."""
    return next((one for one, others in _BY_MEANING.items() if _word(name) in others and name != one), None)


def _word(name: str) -> str:
    return name.rpartition(".")[2].replace("-", "_").lower()


def new_name(dotted: str) -> str | None:
    """The current name of a renamed setting; None if the name was not renamed."""
    found = RENAMED.get(dotted)
    return None if found is None else found.new


def translate_stored(content: Mapping[str, Any]) -> dict[str, Any]:
    """Replace old names in stored settings (by section and field) by the current ones."""
    sections = {section: dict(fields) if isinstance(fields, Mapping) else fields for section, fields in content.items()}
    for old, renamed in RENAMED.items():
        section, _, name = old.partition(".")
        fields = sections.get(section)
        if not isinstance(fields, dict) or name not in fields:
            continue
        for dotted, value in renamed.settings(fields.pop(name)).items():
            new_section, _, new_field = dotted.partition(".")
            sections.setdefault(new_section, {})[new_field] = value
    return sections
