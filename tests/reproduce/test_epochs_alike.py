"""How far two trainings are the same."""

from typing import Any

import pytest

from elfnet.recipe.load import load_recipe
from elfnet.reproduce.epochs_alike import epochs_alike

FORTY = {"train.epochs": 40}


@pytest.mark.parametrize(
    ("one", "other", "settings", "epochs"),
    [
        ("ce", "ce-drw", {}, 32),
        ("ce-drw", "ce", {}, 32),
        ("focal", "focal-drw", {}, 32),
        ("ce-drw", "ce-drw", {"train.drw_start": 100}, 20),
        ("ce-drw", "ce-drw", {"criterion.reweight": "inverse"}, 32),
        ("ce", "ce", {"train.drw_start": 100}, 40),
        ("joint-ce-drw", "branchynet", {}, 40),
        ("balanced-softmax", "logit-adjusted", {}, 40),
        ("balanced-softmax", "logit-adjusted", {"criterion.adjust_tau": 1.5}, 0),
        ("ce", "ce-effective", {}, 0),
        ("ce-drw", "focal-drw", {}, 0),
        ("ce-drw", "elf-ce-drw", {}, 0),
        ("ce-drw", "ce-drw", {"train.epochs": 80}, 0),
        ("ce-drw", "ce-drw", {"train.lr_steps": [100, 180]}, 0),
        ("ce-drw", "ce-drw", {"data.ratio": 10}, 0),
        # A second stage comes after the training.
        ("ce-drw", "ce-drw", {"refit.method": "balanced", "refit.epochs": 5}, 40),
        ("ce", "ce-drw", {"refit.method": "balanced", "refit.epochs": 5}, 32),
        ("ce", "crt", {"refit.run": "runs/ce"}, 0),
        ("ce", "balanced", {"refit.run": "runs/ce"}, 0),
    ],
)
def test_epochs_alike(one: str, other: str, settings: dict[str, Any], epochs: int) -> None:
    """40-epoch runs; the first drop of the rate and the class weights come after 32."""
    recipes = load_recipe(f"cifar10-lt/{one}", FORTY), load_recipe(f"cifar10-lt/{other}", {**FORTY, **settings})
    assert epochs_alike(*recipes) == epochs


def test_second_stages_are_alike_as_long_as_they_are_the_same() -> None:
    balanced = {**FORTY, "refit.method": "balanced", "refit.epochs": 5}
    one, same, other = (
        load_recipe("cifar10-lt/ce", settings) for settings in (balanced, balanced, {**balanced, "refit.lr": 0.2})
    )
    assert (epochs_alike(one, same), epochs_alike(one, other)) == (45, 40)
