"""Mixup, Manifold Mixup and BBN: what a batch becomes and what the forward pass makes of it."""

import pytest
import torch
from torch import Tensor, nn

from elfnet.criterion.labels import Labels
from elfnet.methods.bbn import BilateralForward, CumulativeSchedule
from elfnet.methods.manifold_mixup import ManifoldForward, ManifoldMixup
from elfnet.methods.mixing import MixedBatch, draw_share, unmixed
from elfnet.methods.mixup import Mixup
from elfnet.models.build import build_network
from elfnet.models.staged import StagedNetwork
from elfnet.models.two_branches import TwoBranchHead

IMAGES = torch.rand(6, 1, 8, 8, generator=torch.Generator().manual_seed(0))
TARGET = torch.tensor([0, 1, 2, 0, 1, 2])


def _plain() -> StagedNetwork:
    torch.manual_seed(1)
    # In evaluation mode an image's logits do not depend on the others of its batch.
    return build_network("resnet8", classes=3, image_channels=1, exits=False).eval()


def test_shares_are_beta_distributed_and_repeat_with_the_seed() -> None:
    torch.manual_seed(5)
    shares = [draw_share(1.0) for _ in range(500)]
    torch.manual_seed(5)
    assert draw_share(1.0) == shares[0]
    # Beta(1, 1) is uniform: mean 1/2, variance 1/12.
    assert abs(sum(shares) / 500 - 0.5) < 0.05
    assert abs(sum((s - 0.5) ** 2 for s in shares) / 500 - 1 / 12) < 0.01
    assert all(abs(draw_share(1000.0) - 0.5) < 0.1 for _ in range(20))


def test_mixup_is_the_mean_of_the_pair_its_labels_name() -> None:
    torch.manual_seed(2)
    batch = Mixup(1.0)(IMAGES, TARGET, 0)
    share, second_B = batch.labels.share, batch.labels.second_B
    assert second_B is not None
    for b in range(6):
        # The partner is the one image that explains the mixture.
        rest = (batch.images[b] - share * IMAGES[b]) / (1 - share)
        partner = int((IMAGES - rest).abs().sum(dim=(1, 2, 3)).argmin())
        assert torch.allclose(IMAGES[partner], rest, atol=1e-4)
        assert int(TARGET[partner]) == int(second_B[b])
    assert torch.equal(batch.labels.first_B, TARGET)


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
    mixing = ManifoldMixup(1.0, ManifoldForward(network).depths)
    torch.manual_seed(0)
    depths = {mixing(IMAGES, TARGET, 0).forward["depth"] for _ in range(60)}
    assert depths == set(range(len(list(network.stages[0].children()))))


def test_parts_of_a_mixed_batch_hold_it_all() -> None:
    torch.manual_seed(2)
    batch = Mixup(1.0)(IMAGES, TARGET, 0)
    parts = batch.parts(4)
    assert torch.equal(torch.cat([part.images for part in parts]), batch.images)
    assert torch.equal(torch.cat([_second(part) for part in parts]), _second(batch))
    assert {part.labels.share for part in parts} == {batch.labels.share}


def _second(batch: MixedBatch) -> Tensor:
    assert batch.labels.second_B is not None
    return batch.labels.second_B


def test_parts_leave_out_the_empty_ones_unless_all_are() -> None:
    assert [len(part.images) for part in unmixed(IMAGES[:2], TARGET[:2], 0).parts(3)] == [1, 1]
    assert [len(part.images) for part in unmixed(IMAGES[:0], TARGET[:0], 0).parts(3)] == [0]


def test_bbn_changes_over_from_the_first_sampler_to_the_second() -> None:
    schedule = CumulativeSchedule(10)
    assert [schedule.share(epoch) for epoch in (0, 5)] == [1.0, 0.75]
    assert 0 < schedule.share(9) < 0.2
    batch = schedule(IMAGES, TARGET, 5)
    assert torch.equal(batch.labels.first_B, TARGET[:3])
    assert torch.equal(_second(batch), TARGET[3:])


def test_bbn_runs_each_half_through_its_own_branch() -> None:
    torch.manual_seed(1)
    network = build_network("resnet8", classes=3, image_channels=1, exits=False, branches=2).eval()
    head = network.heads[0]
    assert isinstance(head, TwoBranchHead)
    nn.init.normal_(head.rare.classifier.weight)  # type: ignore[arg-type]
    logits_EBC, _ = BilateralForward(network)(IMAGES, TARGET[:3], share=torch.tensor(0.25))
    features = network.stages[0](IMAGES)
    expected = 0.25 * head.frequent(features[:3]) + 0.75 * head.rare(features[3:])
    assert torch.allclose(logits_EBC[0], expected, atol=1e-6)
    # At inference both branches see every image and count alike.
    assert torch.allclose(network(IMAGES)[0], (head.frequent(features) + head.rare(features)) / 2, atol=1e-6)


def test_an_unmixed_batch_is_what_it_was() -> None:
    batch = unmixed(IMAGES, TARGET, 3)
    assert batch == MixedBatch(IMAGES, Labels(TARGET), {})
