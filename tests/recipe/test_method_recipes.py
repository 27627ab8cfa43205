"""What makes each shipped system the one it is called: systems that are not named by their loss."""

from typing import Any

import pytest

from elfnet.recipe.load import load_recipe, shipped_methods

JOINT = {"model.exits": True, "exits.rule": "all", "criterion.loss": "ce", "criterion.reweight": "effective"}
PLAIN = {"model.exits": False, "criterion.loss": "ce", "criterion.reweight": "none", "data.sampler": "shuffle"}
# Classes drawn alike, and no weights or rule that would undo it.
ANEW = {"data.sampler": "class-balanced", "criterion.loss": "ce", "criterion.reweight": "none", "exits.rule": "all"}
SYSTEMS: dict[str, dict[str, Any]] = {
    "bbn": {**PLAIN, "model.branches": 2},
    "branchynet": {**JOINT, "exits.confidence": "entropy", "criterion.exit_weights": (), "criterion.distil": 0},
    "joint-ce-drw": {**JOINT, "exits.confidence": "probability", "criterion.distil": 0},
    "joint-balanced-softmax": {**JOINT, "criterion.loss": "balanced-softmax", "criterion.reweight": "none"},
    "distilled-exits": {**JOINT, "exits.confidence": "probability", "criterion.distil": 1},
    "msdnet": {**JOINT, "exits.confidence": "probability", "model.backbone": "msdnet"},
    "mixup": {**PLAIN, "train.mix": "mixup", "train.mix_alpha": 1},
    "manifold-mixup": {**PLAIN, "train.mix": "manifold", "train.mix_alpha": 1},
    "balanced": {"data.sampler": "shuffle", "refit.epochs": 0, "refit.head": "auto"},
    "crt": {**ANEW, "model.head": "linear"},
    "lws": {**ANEW, "model.head": "scaled"},
    "ce-effective": {**PLAIN, "criterion.reweight": "effective", "train.drw_start": 0},
    "ce-inverse": {**PLAIN, "criterion.reweight": "inverse", "train.drw_start": 0},
    "ce-inverse-sqrt": {**PLAIN, "criterion.reweight": "inverse_sqrt", "train.drw_start": 0},
    "elf-balanced-softmax-mixup": {
        "exits.rule": "elf",
        "model.exits": True,
        "criterion.loss": "balanced-softmax",
        "train.mix": "mixup",
    },
    # Wilson looks at three neighbours, SMOTE and its kin at five.
    "edited-nearest-neighbours": {"refit.neighbours": 3},
    "smote": {"refit.neighbours": 5},
}


@pytest.mark.parametrize("method", SYSTEMS)
@pytest.mark.parametrize("data", ["cifar10-lt", "imagenet-lt"])
def test_has_the_settings_that_make_it(method: str, data: str) -> None:
    settings = load_recipe(f"{data}/{method}").model_dump()
    for dotted, value in SYSTEMS[method].items():
        section, _, field = dotted.partition(".")
        assert settings[section][field] == value, dotted


def test_they_are_all_shipped() -> None:
    assert set(SYSTEMS) <= set(shipped_methods())
