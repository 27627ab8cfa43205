"""Which batches BBN's two branches get."""

from pathlib import Path
from typing import Any

import pytest

from elfnet.data.loading.build import training_batches
from elfnet.recipe.load import load_recipe
from elfnet.recipe.schema import DataRecipe
from elfnet.train import build as assemble
from elfnet.train.run import train_recipe


def test_the_first_sees_the_data_as_they_are_and_the_second_mostly_rare_classes(
    tiny_settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, int]] = []

    def listening(data: DataRecipe, *, seed: int, **others: Any) -> Any:
        asked.append((data.sampler, seed))
        return training_batches(data, seed=seed, **others)

    monkeypatch.setattr(assemble, "training_batches", listening)
    train_recipe(load_recipe("digits/bbn", {**tiny_settings, "train.epochs": 1}), tmp_path / "run")
    assert [sampler for sampler, _ in asked] == ["shuffle", "reversed"]
    assert asked[0][1] != asked[1][1], "the same crops twice"
