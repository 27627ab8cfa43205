"""Pruning by exit history: streaks, what an epoch shows, weights, the floor, and a whole run."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from elfnet.errors import RequestError
from elfnet.recipe.load import load_recipe
from elfnet.recipe.schema import Recipe
from elfnet.run.checkpoint import load_checkpoint
from elfnet.train.example_pruning import ExitHistory, Pruning, PruningSettings, require_floor
from elfnet.train.run import train_recipe

CPU = torch.device("cpu")
LABELS = np.repeat(np.arange(3), (60, 30, 10))


def _pruning(history: ExitHistory, *, share: float = 0.5, floor: int = 4, epochs: int = 10, seed: int = 0) -> Pruning:
    settings = PruningSettings(share=share, patience=2, floor=floor, until=0.8)
    return Pruning(settings, history, LABELS, seed=seed, epochs=epochs)


def _history(streaks: np.ndarray[tuple[int], np.dtype[np.int64]]) -> ExitHistory:
    history = ExitHistory(len(LABELS), CPU)
    history.streak_N = torch.from_numpy(streaks).to(torch.int32)
    return history


def test_a_streak_grows_breaks_and_waits() -> None:
    history = ExitHistory(4, CPU)
    for exits in ([0, 0, 1], [0, 2, 0], [0, 0, 0]):
        history.add(torch.tensor([0, 1]), torch.tensor(exits[:2]))
        history.add(torch.tensor([2]), torch.tensor(exits[2:]))
        history.end_epoch()
    # Always at the first exit; broken in the second epoch; broken in the first; never shown.
    assert history.streak_N.tolist() == [3, 1, 2, 0]


def test_an_example_shown_twice_must_leave_early_both_times() -> None:
    history = ExitHistory(2, CPU)
    history.add(torch.tensor([0, 0, 1]), torch.tensor([0, 1, 0]))
    history.end_epoch()
    assert history.streak_N.tolist() == [0, 1]


def test_processes_gather_what_each_has_seen() -> None:
    """Two histories of one process each, whose sums are added, end as one that saw everything."""
    parts = [ExitHistory(4, CPU), ExitHistory(4, CPU)]
    parts[0].add(torch.tensor([0, 1]), torch.tensor([0, 1]))
    parts[1].add(torch.tensor([2, 3]), torch.tensor([0, 0]))
    together = parts[0]._count_2N + parts[1]._count_2N
    for part in parts:
        part._all_reduce = lambda tensor: tensor.copy_(together)
        part.end_epoch()
    assert parts[0].streak_N.tolist() == parts[1].streak_N.tolist() == [1, 0, 1, 1]


def test_without_easy_examples_everything_is_shown() -> None:
    assert (_pruning(_history(np.ones(100, dtype=np.int64))).draw(0) == 1).all()


def test_a_part_of_the_easy_examples_stands_for_all_of_them() -> None:
    streaks = np.zeros(100, dtype=np.int64)
    streaks[:40] = 2
    weight_N = _pruning(_history(streaks), share=0.75).draw(3)
    rows = np.flatnonzero(weight_N)
    assert len(rows) == 10 + 60
    assert set(range(40, 100)) <= set(rows.tolist())
    assert weight_N[rows[rows < 40]].tolist() == [4.0] * 10
    # What each class counts in all is what it counts with every example.
    assert [weight_N[label == LABELS].sum() for label in range(3)] == [60, 30, 10]


def test_another_epoch_shows_others_and_the_same_epoch_the_same() -> None:
    streaks = np.full(100, 5)
    first, again, other, seed = (
        _pruning(_history(streaks), seed=seed).draw(epoch).tolist() for seed, epoch in ((0, 1), (0, 1), (0, 2), (1, 1))
    )
    assert first == again
    assert first != other
    assert first != seed


def test_no_class_falls_below_the_floor() -> None:
    weight_N = _pruning(_history(np.full(100, 9)), share=0.9, floor=8).draw(0)
    assert np.bincount(LABELS[weight_N > 0]).tolist() == [8, 8, 8]
    assert [weight_N[label == LABELS].sum() for label in range(3)] == [60, 30, 10]


def test_the_last_epochs_show_everything() -> None:
    pruning = _pruning(_history(np.full(100, 9)))
    assert [(pruning.draw(epoch) > 0).sum() < 100 for epoch in range(10)] == [True] * 8 + [False] * 2


def test_an_epoch_is_drawn_from_the_history_before_it() -> None:
    pruning = _pruning(_history(np.zeros(100, dtype=np.int64)))
    pruning.begin_epoch(0)
    pruning.history.streak_N += 5
    assert pruning.shown(0).all()
    assert pruning.weight(torch.tensor([3, 99])).tolist() == [1.0, 1.0]
    pruning.begin_epoch(1)
    assert pruning.shown(1).sum() == 50


def test_a_class_below_the_floor_is_refused() -> None:
    message = r"train.prune_floor=11 is more than the 10 training examples of class c; set it to 10 or less"
    with pytest.raises(RequestError, match=message):
        require_floor(11, np.bincount(LABELS), ("a", "b", "c"))
    require_floor(10, np.bincount(LABELS), ("a", "b", "c"))
    # A class without training examples cannot be shown at all.
    require_floor(10, np.bincount(LABELS + 1), ("none", "a", "b", "c"))
    with pytest.raises(RequestError, match=message):
        require_floor(11, np.bincount(LABELS + 1), ("none", "a", "b", "c"))


def _tiny(tiny_settings: dict[str, Any], **changes: Any) -> Recipe:
    # A threshold so low that many leave at the first exit.
    pruned = {"exits.train_threshold": "0.11", "train.prune": 0.5, "train.prune_patience": 1, "train.prune_floor": 2}
    return load_recipe("digits/elf-ce-drw", {**tiny_settings, **pruned, **changes})


@pytest.mark.slow
def test_a_pruned_run_shows_less_and_resumes_bit_for_bit(tiny_settings: dict[str, Any], tmp_path: Path) -> None:
    recipe = _tiny(tiny_settings)
    whole = train_recipe(recipe, tmp_path / "whole")
    shown = [record.examples or 0 for record in whole.log()]
    assert shown[0] == shown[-1] == whole.info().data.train
    assert min(shown) < shown[0]
    train_recipe(recipe, tmp_path / "parts", stop_after=lambda done: done == 2)
    parts = train_recipe(recipe, tmp_path / "parts", resume=True)
    one, two = (load_checkpoint(run.checkpoint("last")) for run in (whole, parts))
    assert one.sha256 == two.sha256
    assert one.exit_history is not None
    assert two.exit_history is not None
    assert torch.equal(one.exit_history, two.exit_history)
    assert [record.examples for record in parts.log()] == shown


@pytest.mark.parametrize("mix", ["mixup", "cutmix"])
def test_mixed_examples_do_not_enter_the_history(tiny_settings: dict[str, Any], tmp_path: Path, mix: str) -> None:
    """Epochs 2 to 4 of 5 are mixed."""
    recipe, out = _tiny(tiny_settings, **{"train.mix": mix, "train.mix_off_epochs": 1}), tmp_path / "run"
    histories = []
    for stop in (1, 4, 5):
        run = train_recipe(recipe, out, resume=stop > 1, stop_after=lambda done, stop=stop: done == stop)  # type: ignore[misc]
        histories.append(load_checkpoint(run.checkpoint("last")).exit_history)
    first, mixed, last = histories
    assert first is not None
    assert mixed is not None
    assert last is not None
    assert first.any()
    assert torch.equal(first, mixed)
    assert not torch.equal(mixed, last)


def test_a_floor_that_is_too_high_leaves_the_old_run(tiny_settings: dict[str, Any], tmp_path: Path) -> None:
    run = train_recipe(_tiny(tiny_settings, **{"train.prune": 0.0, "train.epochs": 1}), tmp_path / "run")
    before = load_checkpoint(run.checkpoint("last")).sha256
    with pytest.raises(RequestError, match=r"train.prune_floor=500 is more than"):
        train_recipe(_tiny(tiny_settings, **{"train.prune_floor": 500}), tmp_path / "run", overwrite=True)
    assert load_checkpoint(run.checkpoint("last")).sha256 == before
