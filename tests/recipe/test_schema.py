"""The schema: frozen, closed, documented."""

import pytest
from pydantic import ValidationError

from elfnet.exits.threshold import parse_threshold
from elfnet.recipe.schema import DataRecipe, ExitsRecipe, Recipe, TrainRecipe

SECTIONS = {name: field.annotation for name, field in Recipe.model_fields.items()}


def test_every_setting_is_documented() -> None:
    for section, kind in SECTIONS.items():
        assert kind is not None
        for name, field in getattr(kind, "model_fields").items():  # noqa: B009 (the annotation is typed as any class)
            assert field.description, f"{section}.{name}"


def test_defaults_are_the_papers_schedule() -> None:
    train = TrainRecipe()
    assert (train.epochs, train.batch_size, train.lr, train.momentum, train.weight_decay) == (200, 128, 0.1, 0.9, 2e-4)
    assert (train.warmup_epochs, train.lr_steps, train.lr_factor) == (5.0, (160, 180), 0.01)


def test_default_candidates_for_s_are_the_papers() -> None:
    values = [parse_threshold(text, classes=10) for text in ExitsRecipe().search]
    assert values == pytest.approx([0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95])


def test_recipes_are_frozen_and_closed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Recipe().train.epochs = 3
    with pytest.raises(ValidationError, match="Extra inputs"):
        Recipe.model_validate({"train": {"epoch": 3}})


def test_seeds_are_three_settings() -> None:
    data = DataRecipe(subset_seed=1, class_order_seed=2)
    assert (data.subset_seed, data.class_order_seed, Recipe(data=data).train.seed) == (1, 2, 0)
