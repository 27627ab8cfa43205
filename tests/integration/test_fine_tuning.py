"""A run that starts from the weights of another: frozen, slowed, and without needing the file afterwards."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from elfnet.errors import RequestError
from elfnet.evaluate.run import evaluate_run
from elfnet.recipe.schema import Recipe
from elfnet.run.checkpoint import load_checkpoint
from elfnet.run.directory import RunDirectory
from elfnet.train.run import train_recipe


def _weights(run: RunDirectory) -> dict[str, Tensor]:
    return dict(load_checkpoint(run.checkpoint("last")).weights)


def _change_of_stages(run: RunDirectory, start: dict[str, Tensor]) -> float:
    return sum(
        float((value - start[name]).norm())
        for name, value in _weights(run).items()
        if "conv" in name and "stages" in name
    )


def test_frozen_backbone_stays_and_heads_learn(
    tiny: Callable[..., Recipe], trained: RunDirectory, copy_of: Callable[[RunDirectory], RunDirectory], tmp_path: Path
) -> None:
    source = copy_of(trained)
    recipe = tiny(
        model__weights=str(source.checkpoint("last")),
        model__weights_licence="own",
        train__backbone_lr_factor=0,
        train__epochs=2,
    )
    run = train_recipe(recipe, tmp_path / "frozen", stop_after=lambda done: done == 1)
    start = _weights(trained)
    source.checkpoint("last").unlink()  # neither going on nor evaluating needs the file
    train_recipe(recipe, run.root, resume=True)
    after = _weights(run)
    assert all(torch.equal(value, start[name]) for name, value in after.items() if name.startswith("stages."))
    assert not torch.equal(after["heads.0.trunk.0.weight"], start["heads.0.trunk.0.weight"])
    weights = run.info().weights
    assert weights is not None
    assert weights.summary.startswith("loaded 44 of 44 tensors from ")
    assert evaluate_run(run, "test").exits == 4


def test_smaller_rate_moves_the_backbone_less(
    tiny: Callable[..., Recipe], trained: RunDirectory, tmp_path: Path
) -> None:
    start = _weights(trained)
    moved = []
    for factor in (1.0, 0.01):
        recipe = tiny(
            model__weights=str(trained.checkpoint("last")),
            model__weights_licence="own",
            train__backbone_lr_factor=factor,
        )
        run = train_recipe(recipe, tmp_path / str(factor), stop_after=lambda done: done == 1)
        moved.append(_change_of_stages(run, start))
    assert 0 < moved[1] < 0.1 * moved[0]


def test_weights_that_cannot_be_read_leave_nothing_behind(tiny: Callable[..., Recipe], tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="there is no file"):
        train_recipe(tiny(model__weights=str(tmp_path / "none"), model__weights_licence="unknown"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_freezing_random_weights_is_refused(tiny: Callable[..., Recipe]) -> None:
    with pytest.raises(RequestError, match="freezes a backbone with random weights"):
        tiny(train__backbone_lr_factor=0)
