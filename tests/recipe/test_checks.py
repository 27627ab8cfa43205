"""What makes no sense together is refused with the reason; what does, is taken."""

from typing import Any

import pytest

from elfnet.errors import RequestError
from elfnet.recipe.load import load_recipe


@pytest.mark.parametrize(
    ("method", "overrides", "reason"),
    [
        ("balanced-softmax", {"criterion.reweight": "effective"}, "both correct for the class counts"),
        ("logit-adjusted", {"data.sampler": "class-balanced"}, "both correct for the class counts"),
        ("ce", {"criterion.distil": 0.5}, "need exits"),
        ("ce", {"criterion.exit_weights": (1.0,)}, "need exits"),
        ("ce", {"criterion.equilibrium": True}, "set model.exits=true or criterion.equilibrium=false"),
        (
            "elf-ce",
            {"criterion.equilibrium": True, "train.backbone_lr_factor": 0, "model.weights": "some.safetensors"},
            "train.backbone_lr_factor=0 freezes it; set criterion.equilibrium=false",
        ),
        ("ce", {"model.experts": 3}, "model.experts=3: experts need exits: set model.exits=true"),
        ("bbn", {"model.experts": 2}, "model.experts=2: experts and model.branches=2 both repeat the end"),
        ("elf-ce", {"model.experts": 2, "model.weights": "some.safetensors"}, "leave model.weights out"),
        ("distilled-exits", {"model.experts": 2}, "model.experts=2: .* set criterion.distil=0"),
        ("elf-ce", {"model.experts": 0}, "model.experts"),
        ("distilled-exits", {"exits.after_exit": "drop"}, "exits.after_exit=drop does not compute them"),
        (
            "elf-ce",
            {"train.prune": 0.5, "train.epochs": 4},
            "train.prune=0.5 leaves out nothing in train.epochs=4: .* train.prune_patience=3 .* lower "
            "train.prune_patience, or set train.prune=0",
        ),
        (
            "elf-ce",
            {"train.prune": 0.5, "train.epochs": 10, "train.prune_until": 0.3},
            "all are shown from train.prune_until=0.3 of the epochs on",
        ),
        (
            "elf-strong",
            {"train.optimizer": "adamw"},
            "not for train.optimizer=adamw with train.momentum=0.9; set train.nesterov=false, or train.optimizer=sgd",
        ),
        ("elf-ce", {"train.mix": "manifold"}, "exits before it would see unmixed features"),
        ("manifold-mixup", {"train.accumulate": 2}, "train.accumulate=1"),
        (
            "elf-ce",
            {"train.mix": "cutmix", "train.mix_off_epochs": 5, "train.epochs": 10},
            "train.mix_off_epochs=5 leaves none of train.epochs=10 for train.mix=cutmix; lower it",
        ),
        (
            "elf-ce",
            {"train.mix": "cmo", "train.prune": 0.5, "train.mix_off_epochs": 2},
            "train.prune=0.5 .* train.mix=cmo leaves 2 at the start; set train.mix_off_epochs to "
            "train.prune_patience=3 or more, or train.mix_probability below 1",
        ),
        ("bbn", {"model.exits": True}, "model.exits=false"),
        ("bbn", {"criterion.reweight": "inverse"}, "criterion.reweight=none"),
        ("bbn", {"train.mix": "mixup"}, "train.mix=none"),
        ("bbn", {"data.sampler": "reversed"}, "data.sampler=shuffle"),
        ("bbn", {"model.weights": "some.safetensors"}, "model.weights"),
    ],
)
def test_refused(method: str, overrides: dict[str, Any], reason: str) -> None:
    with pytest.raises(RequestError, match=reason):
        load_recipe(f"digits/{method}", overrides)


@pytest.mark.parametrize("mix", ["cutmix", "cmo"])
def test_patches_are_refused_for_feature_rows(mix: str) -> None:
    expected = (
        f"train.mix={mix} pastes a patch of an image, and data.source=features has feature rows; "
        "set train.mix=mixup or train.mix=none"
    )
    with pytest.raises(RequestError, match=expected):
        load_recipe("features/ce", {"train.mix": mix})
    assert load_recipe("features/ce", {"train.mix": "mixup"})


@pytest.mark.parametrize(
    ("method", "overrides"),
    [
        ("elf-balanced-softmax", {"train.mix": "cmo", "train.mix_off_epochs": 3, "train.mix_probability": 0.5}),
        ("elf-ce", {"train.mix": "cutmix", "train.accumulate": 2, "exits.after_exit": "drop"}),
        ("elf-balanced-softmax", {"train.mix": "mixup"}),
        ("elf-ldam-drw", {"train.mix": "mixup"}),
        ("elf-ce", {"train.prune": 0.5, "train.epochs": 5}),
        ("elf-strong", {"train.optimizer": "adamw", "train.nesterov": False}),
        ("elf-ce-drw", {"criterion.distil": 0.3}),
        ("elf-ce-drw", {"criterion.equilibrium": True, "exits.after_exit": "drop"}),
        ("elf-ldam-drw", {"model.experts": 3, "exits.after_exit": "drop", "criterion.exit_weights": (1.0,) * 6}),
        ("elf-ce-drw", {"criterion.exit_weights": (1.0, 0.5, 0.5, 1.0)}),
        ("mixup", {"train.accumulate": 2, "criterion.reweight": "effective"}),
    ],
)
def test_taken(method: str, overrides: dict[str, Any]) -> None:
    assert load_recipe(f"digits/{method}", overrides)
