"""One contract for every shipped method: it trains, stops and goes on bit for bit, and gives an exit table."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from elfnet.evaluate.run import evaluate_run
from elfnet.recipe.load import load_recipe, shipped_methods
from elfnet.recipe.schema import Recipe
from elfnet.report import method_name
from elfnet.run.checkpoint import load_checkpoint
from elfnet.run.directory import RunDirectory
from elfnet.train.run import train_recipe


@pytest.fixture(scope="module")
def finished(tiny: Callable[..., Recipe], tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A plain run that others start from."""
    return train_recipe(tiny("ce", train__epochs=2), tmp_path_factory.mktemp("from") / "ce")


FAST = ("bbn", "crt", "elf-balanced-softmax", "elf-ce-drw", "elf-ldam-drw", "elf-strong-experts", "mixup", "smote")
"""One method of every kind; `make test-all` trains the others."""


@pytest.mark.parametrize(
    "method",
    [method if method in FAST else pytest.param(method, marks=pytest.mark.slow) for method in shipped_methods()],
)
def test_trains_goes_on_and_is_evaluated(
    method: str, tiny: Callable[..., Recipe], finished: RunDirectory, tmp_path: Path
) -> None:
    overrides: dict[str, Any] = {"train__epochs": 2}
    refit = load_recipe(f"digits/{method}").refit
    if refit.method != "none" and not refit.epochs:
        overrides["refit__run"] = str(finished.root)
    if refit.method == "balanced":
        overrides["refit__epochs"] = 2
    recipe = tiny(method, **overrides)
    straight = train_recipe(recipe, tmp_path / "straight")
    train_recipe(recipe, tmp_path / "stopped", stop_after=lambda _: True)
    resumed = train_recipe(recipe, tmp_path / "stopped", resume=True)
    weights, again = (load_checkpoint(run.checkpoint("last")).weights for run in (straight, resumed))
    assert weights.keys() == again.keys()
    assert all(torch.equal(weights[name], again[name]) for name in weights)
    table = evaluate_run(straight)
    assert np.isfinite(table.logits_NEC).all()
    assert (table.exits > 1) == recipe.model.exits
    for record in straight.log():
        assert np.isfinite(record.loss)


def test_every_method_has_a_name_of_its_own() -> None:
    names = [method_name(load_recipe(f"digits/{method}")) for method in shipped_methods()]
    # The scaled rule of ELF(LDAM) and the optimizer of joint-quick are settings, not other methods.
    assert sorted({name for name in names if names.count(name) > 1}) == ["ELF(LDAM)+DRW", "Joint(BalancedSoftmax)"]
