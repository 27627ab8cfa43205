"""What follows from a recipe about its losses and stages."""

import re
from typing import Any

import pytest

from elfnet.errors import RequestError
from elfnet.recipe.load import load_recipe
from elfnet.recipe.schema import ModelRecipe, Recipe
from elfnet.recipe.stages import (
    Stage,
    final_model,
    final_model_of_stored,
    final_recipe,
    loss_scale,
    stage_of_weights,
    stages_of,
    total_epochs,
)


@pytest.mark.parametrize("loss", ["ce", "focal", "ldam", "balanced-softmax", "logit-adjusted"])
def test_every_loss_scales_cosines_and_only_cosines(loss: str) -> None:
    cosines = {"criterion.loss": loss, "criterion.reweight": "none", "model.head": "cosine"}
    assert loss_scale(load_recipe("cifar10-lt/ce", cosines)) == 30
    assert loss_scale(load_recipe("cifar10-lt/ce", {**cosines, "criterion.cosine_scale": 16.0})) == 16
    assert loss_scale(load_recipe("cifar10-lt/ce", {"criterion.cosine_scale": 16.0})) == 1


def two_stages(**overrides: Any) -> Recipe:
    settings = {"refit.method": "balanced", "refit.epochs": 7, "train.epochs": 40, **overrides}
    return load_recipe("cifar100-lt/elf-ldam-drw", settings)


def test_most_runs_have_one_stage() -> None:
    recipe = load_recipe("cifar10-lt/elf-ce-drw", {"train.epochs": 40})
    assert stages_of(recipe) == (Stage("training", recipe, 0, 40),)
    assert (total_epochs(recipe), final_recipe(recipe)) == (40, recipe)
    crt = load_recipe("cifar10-lt/crt", {"refit.run": "runs/ce", "train.epochs": 5})
    assert stages_of(crt) == (Stage("training", crt, 0, 5),)


def test_a_second_stage_follows_the_training() -> None:
    recipe = two_stages()
    training, balanced = stages_of(recipe)
    assert [(stage.name, stage.first, stage.end) for stage in (training, balanced)] == [
        ("training", 0, 40),
        ("balanced", 40, 47),
    ]
    assert total_epochs(recipe) == 47
    # The training is that of the recipe without a second stage.
    assert training.recipe == load_recipe("cifar100-lt/elf-ldam-drw", {"train.epochs": 40})
    assert [stage_of_weights(recipe, done).name for done in (0, 39, 40, 41, 47)] == ["training"] * 3 + ["balanced"] * 2


def test_from_a_run_there_is_the_second_stage_alone() -> None:
    recipe = load_recipe("cifar100-lt/balanced", {"refit.run": "runs/joint", "refit.epochs": 4})
    (balanced,) = stages_of(recipe)
    assert (balanced.name, balanced.first, balanced.end) == ("balanced", 0, 4)
    assert stage_of_weights(recipe, 0) == balanced
    assert total_epochs(load_recipe("cifar100-lt/balanced", {"refit.run": "runs/joint"})) == 10


def test_what_the_second_stage_is_trained_by() -> None:
    settings = {
        "train.mix": "mixup",
        "train.ema_decay": 0.999,
        "train.batch_size": 256,
        "train.accumulate": 2,
        "train.seed": 3,
        "train.optimizer": "adamw",
        "train.resize_start": 0.5,
        "exits.after_exit": "drop",
        "data.augment": "crop",
        "criterion.cosine_scale": 16.0,
        "refit.lr": 0.3,
        "refit.weight_decay": 0.0,
    }
    recipe = final_recipe(two_stages(**settings))
    assert (recipe.criterion.loss, recipe.criterion.reweight, recipe.criterion.cosine_scale) == (
        "balanced-softmax",
        "none",
        16.0,
    )
    assert (recipe.exits.rule, recipe.exits.after_exit) == ("all", "mask")
    assert (recipe.data.sampler, recipe.data.augment) == ("shuffle", "crop")
    train = recipe.train
    assert (train.mix, train.ema_decay, train.optimizer, train.resize_start) == ("none", 0.0, "sgd", 1.0)
    assert (train.schedule, train.warmup_epochs, train.epochs, train.schedule_epochs) == ("cosine", 0.0, 7, 7)
    assert (train.lr, train.weight_decay, train.nesterov) == (0.3, 0.0, True)
    assert (train.batch_size, train.accumulate, train.seed) == (256, 2, 3)


@pytest.mark.parametrize(
    ("own", "asked", "final", "scale"),
    [
        ("linear", "auto", "linear", 1),
        ("linear", "cosine", "cosine", 30),
        ("cosine", "auto", "cosine", 30),
        ("cosine", "linear", "linear", 1),
    ],
)
def test_its_heads_and_their_scale(own: str, asked: str, final: str, scale: float) -> None:
    settings = {"model.head": own, "refit.method": "balanced", "refit.epochs": 5, "refit.head": asked}
    recipe = load_recipe("cifar10-lt/ce", settings)
    assert (recipe.model.head, final_model(recipe).head) == (own, final)
    assert loss_scale(final_recipe(recipe)) == scale
    assert final_model_of_stored(recipe.model_dump(mode="json")) == final_model(recipe)


def test_stored_recipes_of_earlier_versions_describe_their_network() -> None:
    content = {"model": {"backbone": "resnet20", "head": "cosine"}, "refit": {"how": "crt"}, "unknown": {"x": 1}}
    assert final_model_of_stored(content) == ModelRecipe(backbone="resnet20", head="cosine")


@pytest.mark.parametrize(
    ("method", "settings", "complaint"),
    [
        ("ce", {"refit.epochs": 10}, "refit.epochs=10 is for refit.method=balanced, and refit.method=none"),
        ("ce", {"refit.epochs": 10}, "has no second stage; set refit.epochs=0, or set refit.method=balanced"),
        ("crt", {"refit.epochs": 10}, "refit.method=crt refits the classifiers in another way; set refit.epochs=0"),
        ("tau-norm", {"refit.epochs": 3}, "refit.method=tau-norm refits the classifiers in another way"),
        ("ce", {"refit.head": "cosine"}, "refit.head=cosine is for refit.method=balanced"),
        ("bbn", {"refit.method": "balanced", "refit.epochs": 3}, "BBN has two branches: set model.branches=1"),
        ("balanced", {"refit.run": "runs/ce", "model.weights": "w.pt"}, "leave model.weights out"),
        ("balanced", {"refit.run": "runs/ce", "train.backbone_lr_factor": 0.5}, "leave train.backbone_lr_factor out"),
        (
            "ce",
            {"refit.method": "balanced", "refit.epochs": 3, "model.head": "scaled"},
            "scaled classifiers are for LWS only",
        ),
        ("ce", {"refit.epochs": -1}, "refit.epochs=-1"),
        ("balanced", {"refit.head": "scaled"}, "refit.head=scaled"),
        ("balanced", {"refit.lr": 0.0}, "refit.lr=0.0"),
    ],
)
def test_what_makes_no_sense_is_refused(method: str, settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(RequestError, match=re.escape(complaint)) as caught:
        load_recipe(f"cifar10-lt/{method}", settings)
    assert "\n" not in str(caught.value)


def test_a_training_before_a_second_stage_may_start_from_weights() -> None:
    settings = {"refit.method": "balanced", "refit.epochs": 3, "model.weights": "w.pt", "train.backbone_lr_factor": 0.1}
    recipe = load_recipe("imagenet-lt/ce", settings)
    assert stages_of(recipe)[0].recipe.train.backbone_lr_factor == 0.1
    assert final_recipe(recipe).train.backbone_lr_factor == 1.0
