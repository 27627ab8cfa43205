"""Mixup, Manifold Mixup, CutMix, CMO and BBN: mixed batches and their forward passes."""

# Shapes: B batch, C classes

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from elfnet.data.loading.feed import Partners, Request, TrainingBatch
from elfnet.losses.base import Labels
from elfnet.methods.bbn import CumulativeSchedule
from elfnet.methods.mixing import (
    Box,
    CutMix,
    ManifoldForward,
    ManifoldMixup,
    MinorityCutMix,
    MixedBatch,
    MixSchedule,
    Mixup,
    PairMixing,
    draw_box,
)
from elfnet.models.build import build_network
from elfnet.models.staged import StagedNetwork

IMAGES = torch.rand(6, 1, 8, 8, generator=torch.Generator().manual_seed(0))
TARGET = torch.tensor([0, 1, 2, 0, 1, 2])
REQUEST = Request(np.arange(10, 16), np.zeros(6, dtype=np.int64))
ROWS = torch.from_numpy(REQUEST.rows_r)


def _schedule(**changes: Any) -> MixSchedule:
    return MixSchedule(**({"seed": 3, "alpha": 1.0, "epochs": 10} | changes))


def _batch(
    mixing: PairMixing | None = None, *, epoch: int = 0, step: int = 0, images: Tensor = IMAGES
) -> TrainingBatch:
    """The batch of a feed with one process: partners are other examples of the batch."""
    partners = None if mixing is None else mixing.partners(epoch, step, REQUEST)
    if partners is None:
        return TrainingBatch(step, images, TARGET, ROWS)
    place_B = torch.from_numpy(partners.rows_r - 10)
    return TrainingBatch(step, images, TARGET, ROWS, Partners(images, TARGET, place_B))


def _plain() -> StagedNetwork:
    torch.manual_seed(1)
    # In evaluation mode an image's logits do not depend on the others of its batch.
    return build_network("resnet8", classes=3, image_channels=1, exits=False).eval()


def _shares(mixing: PairMixing, number: int) -> list[float]:
    return [mixing(_batch(mixing, step=step), 0).labels.share for step in range(number)]


def test_shares_are_beta_distributed_and_a_function_of_seed_epoch_and_step() -> None:
    shares = _shares(Mixup(_schedule()), 500)
    torch.manual_seed(5)
    assert _shares(Mixup(_schedule()), 3) == shares[:3], "not of torch's generator"
    # Beta(1, 1) is uniform: mean 1/2, variance 1/12.
    assert abs(sum(shares) / 500 - 0.5) < 0.05
    assert abs(sum((s - 0.5) ** 2 for s in shares) / 500 - 1 / 12) < 0.01
    assert all(abs(share - 0.5) < 0.1 for share in _shares(Mixup(_schedule(alpha=1000.0)), 20))
    assert _shares(Mixup(_schedule(seed=4)), 3) != shares[:3]
    mixing = Mixup(_schedule())
    assert mixing(_batch(mixing, epoch=1), 1).labels.share not in shares


def test_partners_are_a_permutation_and_a_function_of_seed_epoch_and_step() -> None:
    def drawn(seed: int, epoch: int, step: int) -> tuple[int, ...]:
        partners = Mixup(_schedule(seed=seed)).partners(epoch, step, REQUEST)
        assert partners is not None
        assert sorted(partners.rows_r) == REQUEST.rows_r.tolist()
        return tuple(partners.rows_r.tolist())

    torch.manual_seed(5)
    assert drawn(0, 0, 0) == drawn(0, 0, 0)
    found = {drawn(seed, epoch, step) for seed in range(3) for epoch in range(3) for step in range(3)}
    assert len(found) > 20


def test_a_partner_keeps_the_augmentation_it_has_in_the_batch() -> None:
    request = Request(np.array([7, 7, 8]), np.array([0, 1, 0]))
    for step in range(10):
        partners = Mixup(_schedule()).partners(0, step, request)
        assert partners is not None
        assert sorted(zip(partners.rows_r, partners.repeat_r, strict=True)) == [(7, 0), (7, 1), (8, 0)]


def test_some_epochs_and_some_batches_are_not_mixed() -> None:
    def mixed(epoch: int, step: int, **changes: Any) -> bool:
        return Mixup(_schedule(**changes)).partners(epoch, step, REQUEST) is not None

    assert all(mixed(epoch, step) for epoch in range(10) for step in range(5))
    assert [mixed(epoch, 0, off_epochs=3) for epoch in range(10)] == [False] * 3 + [True] * 4 + [False] * 3
    half = [mixed(0, step, probability=0.5) for step in range(400)]
    assert 160 < sum(half) < 240
    assert half == [mixed(0, step, probability=0.5) for step in range(400)]
    mixing = CutMix(_schedule(off_epochs=3))
    assert mixing(_batch(mixing), 0) == MixedBatch(IMAGES, Labels(TARGET), {}, ROWS)


def test_mixup_is_the_mean_of_the_pair_its_labels_name() -> None:
    mixing = Mixup(_schedule())
    batch = mixing(_batch(mixing), 0)
    share, second_B = batch.labels.share, batch.labels.second_B
    assert second_B is not None
    for b in range(6):
        # The partner is the one image that explains the mixture.
        rest = (batch.images[b] - share * IMAGES[b]) / (1 - share)
        partner = int((IMAGES - rest).abs().sum(dim=(1, 2, 3)).argmin())
        assert torch.allclose(IMAGES[partner], rest, atol=1e-4)
        assert int(TARGET[partner]) == int(second_B[b])
    assert torch.equal(batch.labels.first_B, TARGET)


def test_a_box_is_that_of_the_published_code() -> None:
    """CutMix's authors: centre anywhere, half of the sides on each side of it, clipped."""

    class Fixed:
        def __init__(self, *numbers: int) -> None:
            self._numbers = list(numbers)

        def integers(self, high: int) -> int:
            assert self._numbers[0] < high
            return self._numbers.pop(0)

    def box(share: float, y: int, x: int) -> Box:
        return draw_box(32, 16, share, Fixed(y, x))  # type: ignore[arg-type]

    assert box(0.75, 16, 8) == Box(8, 4, 24, 12)
    assert box(0.75, 0, 15) == Box(0, 11, 8, 16)
    assert box(0.0, 31, 0) == Box(15, 0, 32, 8)
    assert box(1.0, 5, 5) == Box(5, 5, 5, 5)
    assert box(0.75, 0, 15).share_outside(32, 16) == 1 - 8 * 5 / (32 * 16)


def test_boxes_keep_to_the_share_where_they_are_not_clipped() -> None:
    rng = np.random.default_rng(0)
    boxes = [draw_box(64, 64, 0.84, rng) for _ in range(2000)]
    assert {box.top for box in boxes} == set(range(52))
    inside = [box for box in boxes if box.top > 0 and box.left > 0 and box.bottom < 64 and box.right < 64]
    assert {box.share_outside(64, 64) for box in inside} == {1 - 24 * 24 / 4096}
    assert all(box.share_outside(64, 64) >= 1 - 25 * 25 / 4096 for box in boxes)


@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
def test_cutmix_pastes_one_box_of_each_partner_and_shares_labels_by_area(layout: torch.memory_format) -> None:
    mixing = CutMix(_schedule())
    images = torch.rand(6, 3, 8, 12).contiguous(memory_format=layout)
    before = images.clone()
    shares = []
    for step in range(40):
        given = _batch(mixing, step=step, images=images)
        assert given.partners is not None
        batch = mixing(given, 0)
        pasted = images[given.partners.place_b]
        from_partner_HW = (batch.images != images).any(dim=(0, 1))
        rows, columns = from_partner_HW.any(dim=1), from_partner_HW.any(dim=0)
        assert torch.equal(from_partner_HW, rows[:, None] & columns[None, :]), "one box for all"
        assert torch.equal(batch.images, torch.where(from_partner_HW, pasted, images))
        assert batch.images.is_contiguous(memory_format=layout)
        shares.append(batch.labels.share)
        fixed = given.partners.place_b == torch.arange(6)
        if not bool(fixed.all()):
            assert shares[-1] == pytest.approx(1 - float(from_partner_HW.float().mean()))
        assert batch.labels.second_B is not None
        assert torch.equal(batch.labels.second_B, TARGET[given.partners.place_b])
    assert torch.equal(images, before), "the images of the feed are not changed"
    assert min(shares) < 0.5 < max(shares)


def test_the_label_with_the_larger_part_of_the_image_leads() -> None:
    """Eq. 1 compares predictions with this label."""
    mixing = CutMix(_schedule())
    leads = set()
    for step in range(40):
        labels = mixing(_batch(mixing, step=step), 0).labels
        assert labels.second_B is not None
        expected = labels.first_B if labels.share >= 0.5 else labels.second_B
        assert torch.equal(labels.leading, expected)
        leads.add(labels.share >= 0.5)
    assert leads == {True, False}


def test_patches_come_from_classes_in_inverse_proportion_to_their_counts() -> None:
    labels_N = np.random.default_rng(0).permutation(np.repeat([0, 1, 3], [60, 12, 4]))
    mixing = MinorityCutMix(_schedule(), labels_N)
    batch = Request(np.zeros(100, dtype=np.int64), np.zeros(100, dtype=np.int64))
    drawn = [mixing.partners(0, step, batch) for step in range(60)]
    rows = np.concatenate([one.rows_r for one in drawn if one is not None])
    assert len(rows) == 6000
    found = np.bincount(labels_N[rows], minlength=4) / 6000
    weights = np.array([1 / 60, 1 / 12, 0, 1 / 4])
    assert found == pytest.approx(weights / weights.sum(), abs=0.025)
    within = Counter(rows[labels_N[rows] == 3].tolist())
    assert len(within) == 4
    assert min(within.values()) > 0.2 * sum(within.values())
    repeats = np.concatenate([one.repeat_r for one in drawn if one is not None])
    assert len(set(repeats.tolist())) == 6000, "every patch is augmented by numbers of its own"
    assert repeats.min() > 2**32, "which no example of a batch has"


def test_cmo_mixes_as_cutmix_does() -> None:
    """The background is the batch, the patch is the partner's."""
    labels_N = np.array([0] * 9 + [1])
    mixing = MinorityCutMix(_schedule(), labels_N)
    pool = torch.rand(9, 1, 8, 8)
    partners = Partners(pool, torch.arange(9), torch.tensor([6, 7, 8] * 2))
    given = TrainingBatch(0, pool[:6], TARGET, torch.arange(6), partners)
    batch = mixing(given, 0)
    assert torch.equal(batch.labels.first_B, TARGET)
    assert batch.labels.second_B is not None
    assert batch.labels.second_B.tolist() == [6, 7, 8] * 2
    pasted_HW = (batch.images != pool[:6]).any(dim=(0, 1))
    assert 0 < pasted_HW.sum() < 64
    assert torch.equal(batch.images, torch.where(pasted_HW, pool[[6, 7, 8] * 2], pool[:6]))
    assert batch.labels.share == pytest.approx(1 - float(pasted_HW.float().mean()))


@pytest.mark.parametrize("depth", [0, 1, 2, 3])
def test_manifold_mixup_mixes_before_the_part_at_its_depth(depth: int) -> None:
    network = _plain()
    partner_B, share = torch.tensor([1, 0, 3, 2, 5, 4]), torch.tensor(0.3)
    logits_EBC, visited_EB = ManifoldForward(network)(IMAGES, TARGET, depth=depth, partner_B=partner_B, share=share)
    features = IMAGES
    for number, part in enumerate(network.stages[0].children()):
        if number == depth:
            features = 0.3 * features + 0.7 * features[partner_B]
        features = part(features)
    assert torch.allclose(logits_EBC[0], network.heads[0](features), atol=1e-5)
    assert bool(visited_EB.all())


def test_manifold_mixup_draws_every_depth_that_its_network_has() -> None:
    network = _plain()
    mixing = ManifoldMixup(_schedule(), ManifoldForward(network).depths)
    depths = {mixing(_batch(mixing, step=step), 0).forward["depth"] for step in range(60)}
    assert depths == set(range(len(list(network.stages[0].children()))))


def test_manifold_mixup_of_a_batch_that_is_not_mixed_is_the_plain_forward_pass() -> None:
    network = _plain()
    forward = ManifoldForward(network)
    mixing = ManifoldMixup(_schedule(off_epochs=1), forward.depths)
    batch = mixing(_batch(mixing), 0)
    assert batch.labels == Labels(TARGET)
    assert torch.equal(forward(batch.images, TARGET, **batch.forward)[0], network(IMAGES))


def _second(batch: MixedBatch) -> Tensor:
    assert batch.labels.second_B is not None
    return batch.labels.second_B


def test_bbn_changes_over_from_the_first_sampler_to_the_second() -> None:
    schedule = CumulativeSchedule(10)
    assert [schedule.share(epoch) for epoch in (0, 5)] == [1.0, 0.75]
    assert 0 < schedule.share(9) < 0.2
    batch = schedule(_batch(), 5)
    assert torch.equal(batch.labels.first_B, TARGET[:3])
    assert torch.equal(_second(batch), TARGET[3:])
