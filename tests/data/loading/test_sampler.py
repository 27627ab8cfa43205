"""Orders of an epoch: shares of classes, even repeats, a function of the generator; and shares of a batch."""

import numpy as np
import pytest
import torch

from elfnet.data.loading.sampler import EpochOrder, Shard, epoch_generator, step_rng

COUNTS = (1600, 400, 100)
LABELS_N = np.random.default_rng(0).permutation(np.repeat([0, 1, 3], COUNTS))  # class 2 has no example


def test_shuffle_is_the_permutation_of_the_generator() -> None:
    drawn = EpochOrder(LABELS_N).draw(epoch_generator(0, 1))
    assert torch.equal(drawn.rows_N, torch.randperm(2100, generator=epoch_generator(0, 1)))
    assert not drawn.repeat_N.any()


@pytest.mark.parametrize(
    ("sampler", "shares"),
    [("class-balanced", (1, 1, 1)), ("square-root", (40, 20, 10)), ("reversed", (1 / 1600, 1 / 400, 1 / 100))],
)
def test_classes_are_drawn_by_their_share_and_their_examples_evenly(sampler: str, shares: tuple[float, ...]) -> None:
    order = EpochOrder(LABELS_N, sampler)
    drawn = order.draw(epoch_generator(0, 1))
    assert torch.equal(drawn.rows_N, order.draw(epoch_generator(0, 1)).rows_N)
    assert not torch.equal(drawn.rows_N, order.draw(epoch_generator(0, 2)).rows_N)
    labels = LABELS_N[drawn.rows_N.numpy()]
    found = np.array([(labels == c).mean() for c in (0, 1, 3)])
    # Four standard deviations of a share that is drawn 2,100 times.
    assert found == pytest.approx(np.array(shares) / sum(shares), abs=4 * np.sqrt(0.25 / 2100))
    for c in (0, 1, 3):
        times = np.bincount(drawn.rows_N.numpy(), minlength=2100)[c == LABELS_N]
        assert times.max() - times.min() <= 1
    # How often each was shown before, against a loop.
    seen: dict[int, int] = {}
    for row, repeat in zip(drawn.rows_N.tolist(), drawn.repeat_N.tolist(), strict=True):
        assert repeat == seen.get(row, 0)
        seen[row] = repeat + 1


@pytest.mark.parametrize("world_size", [1, 2, 3, 8])
@pytest.mark.parametrize("batch", [0, 1, 5, 8, 24])
def test_shares_make_up_the_batch(world_size: int, batch: int) -> None:
    parts = [Shard(rank, world_size).of(torch.arange(batch)) for rank in range(world_size)]
    assert torch.cat(parts).tolist() == list(range(batch))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_numbers_of_a_step_are_its_own() -> None:
    """They differ from those of every other step, epoch, seed and stream, and of the epoch as a whole."""
    keys = [(seed, epoch, step, stream) for seed in (0, 1) for epoch in (0, 1) for step in (0, 1) for stream in (0, 1)]
    drawn = {key: step_rng(*key).integers(2**62) for key in keys}
    assert len(set(drawn.values())) == len(keys)
    assert drawn == {key: step_rng(*key).integers(2**62) for key in keys}
    of_epoch = np.random.default_rng(np.random.SeedSequence([0, 0])).integers(2**62)
    assert of_epoch not in drawn.values()
