"""Pruning by exit history: streaks, what an epoch shows, weights, the floor, and a whole run."""

import numpy as np
import pytest
import torch

from elfnet.errors import RequestError
from elfnet.train.pruning import ExitHistory, Pruning, PruningSettings

CPU = torch.device("cpu")
LABELS = np.repeat(np.arange(3), (60, 30, 10))


def _pruning(history: ExitHistory, *, share: float = 0.5, floor: int = 4, epochs: int = 10, seed: int = 0) -> Pruning:
    settings = PruningSettings(share=share, patience=2, floor=floor, full_epochs=0.2)
    return Pruning(settings, history, LABELS, ("a", "b", "c"), seed=seed, epochs=epochs)


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
    together = parts[0]._met_2N + parts[1]._met_2N
    for part in parts:
        part._summed = lambda tensor: tensor.copy_(together)
        part.end_epoch()
    assert parts[0].streak_N.tolist() == parts[1].streak_N.tolist() == [1, 0, 1, 1]


def test_without_easy_examples_everything_is_shown() -> None:
    rows, weight_N = _pruning(_history(np.ones(100, dtype=np.int64))).draw(0)
    assert rows.tolist() == list(range(100))
    assert (weight_N == 1).all()


def test_a_part_of_the_easy_examples_stands_for_all_of_them() -> None:
    streaks = np.zeros(100, dtype=np.int64)
    streaks[:40] = 2
    rows, weight_N = _pruning(_history(streaks), share=0.75).draw(3)
    assert len(rows) == 10 + 60
    assert set(range(40, 100)) <= set(rows.tolist())
    assert weight_N[rows[rows < 40]].tolist() == [4.0] * 10
    # What each class counts in all is what it counts with every example.
    assert [weight_N[label == LABELS].sum() for label in range(3)] == [60, 30, 10]


def test_another_epoch_shows_others_and_the_same_epoch_the_same() -> None:
    streaks = np.full(100, 5)
    first, again, other, seed = (
        _pruning(_history(streaks), seed=seed).draw(epoch)[0].tolist()
        for seed, epoch in ((0, 1), (0, 1), (0, 2), (1, 1))
    )
    assert first == again
    assert first != other
    assert first != seed


def test_no_class_falls_below_the_floor() -> None:
    rows, weight_N = _pruning(_history(np.full(100, 9)), share=0.9, floor=8).draw(0)
    assert np.bincount(LABELS[rows]).tolist() == [8, 8, 8]
    assert [weight_N[label == LABELS].sum() for label in range(3)] == [60, 30, 10]


def test_the_last_epochs_show_everything() -> None:
    pruning = _pruning(_history(np.full(100, 9)))
    assert len(pruning.draw(7)[0]) < 100
    assert len(pruning.draw(8)[0]) == len(pruning.draw(9)[0]) == 100


def test_a_class_below_the_floor_is_refused() -> None:
    with pytest.raises(
        RequestError,
        match=r"train.prune_floor=11 is more than the 10 training examples of class c; set it to 10 or less",
    ):
        _pruning(_history(np.zeros(100, dtype=np.int64)), floor=11)
