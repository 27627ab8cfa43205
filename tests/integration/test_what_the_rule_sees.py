"""Losses that move logits move them for themselves: eq. 1, the exit table and the answer see those of the network."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from elfnet.data.build import load_splits
from elfnet.data.loading.build import normalisation_of
from elfnet.data.loading.feed import TrainingBatch
from elfnet.data.types import LabelledImages
from elfnet.evaluate.run import evaluate_run
from elfnet.exits.training_rule import TrainingRule
from elfnet.losses.logit_adjusted import LogitAdjustedLoss, log_prior
from elfnet.methods.mixing import MixedBatch, Mixup
from elfnet.models.build import network_of
from elfnet.recipe.schema import Recipe
from elfnet.run.checkpoint import load_checkpoint
from elfnet.train.run import train_recipe


def naive_visited(logits_EBC: Tensor, target_B: Tensor) -> Tensor:
    p_EBC = logits_EBC.softmax(dim=-1)
    visited_EB = torch.ones(p_EBC.shape[:2], dtype=torch.bool)
    for b, y in enumerate(target_B.tolist()):
        for e in range(len(p_EBC) - 1):
            if int(p_EBC[e, b].argmax()) == y and float(p_EBC[e, b, y]) > 0.2:
                visited_EB[e + 1 :, b] = False
    return visited_EB


@pytest.mark.parametrize("method", ["elf-balanced-softmax-mixup", "elf-logit-adjusted"])
def test_the_rule_and_the_exit_table_see_unadjusted_logits(
    method: str, tiny: Callable[..., Recipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ruled: list[tuple[Tensor, Tensor, Tensor]] = []
    network_gave: list[Tensor] = []
    mixed: list[MixedBatch] = []
    visited, mix, loss = TrainingRule.visited, Mixup.__call__, LogitAdjustedLoss.forward

    def seen(self: TrainingRule, logits_EBC: Tensor, target_B: Tensor) -> Tensor:
        ruled.append((logits_EBC.detach().clone(), target_B, visited(self, logits_EBC, target_B)))
        return ruled[-1][2]

    def mixing(self: Mixup, batch: TrainingBatch, epoch: int) -> MixedBatch:
        mixed.append(mix(self, batch, epoch))
        return mixed[-1]

    def lossy(self: LogitAdjustedLoss, logits: Tensor, target: Tensor) -> Tensor:
        before = logits.detach().clone()
        answer = loss(self, logits, target)
        assert torch.equal(logits.detach(), before), "the loss changed logits that others read"
        # The same logits are asked about once for every label that a mixed image has.
        if not network_gave or not torch.equal(network_gave[-1], before):
            network_gave.append(before)
        return answer

    monkeypatch.setattr(TrainingRule, "visited", seen)
    monkeypatch.setattr(Mixup, "__call__", mixing)
    monkeypatch.setattr(LogitAdjustedLoss, "forward", lossy)
    # Low enough for some to leave within three epochs.
    recipe = tiny(method, train__epochs=3, exits__train_threshold="0.2")
    run = train_recipe(recipe, tmp_path / "run")

    assert len(ruled) == len(network_gave) > 1
    for (logits_EBC, target_B, visited_EB), given_EBC in zip(ruled, network_gave, strict=True):
        assert torch.equal(logits_EBC, given_EBC)
        assert torch.equal(visited_EB, naive_visited(given_EBC, target_B))
    splits = load_splits(recipe.data)
    counts = splits.class_counts_C.tolist()
    adjusted = [torch.equal(v, naive_visited(x + log_prior(counts).float(), y)) for x, y, v in ruled]
    assert not all(adjusted), "adjusted logits would have done the same, so that it is not tested"
    if mixed:
        shares = [batch.labels.share for batch in mixed]
        assert min(shares) < 0.5 < max(shares), "one side is not tested"
        for (_, target_B, _), batch in zip(ruled, mixed, strict=True):
            larger = batch.labels.first_B if batch.labels.share > 0.5 else batch.labels.second_B
            assert larger is not None
            assert torch.equal(target_B, larger)

    assert isinstance(splits.test, LabelledImages)
    normalisation = normalisation_of(recipe.data, splits)
    network = network_of(recipe.model, classes=10, image_channels=1)
    network.load_state_dict(dict(load_checkpoint(run.checkpoint("last")).weights))
    pixels = torch.from_numpy(splits.test.images_NHWC).permute(0, 3, 1, 2).float() / 255
    mean, deviation = (torch.tensor(one)[:, None, None] for one in (normalisation.mean_K, normalisation.std_K))
    with torch.no_grad():
        logits_EBC = network.eval()((pixels - mean) / deviation)
    table_EBC = torch.from_numpy(evaluate_run(run).logits_NEC).movedim(1, 0)
    assert torch.allclose(table_EBC, logits_EBC, atol=1e-4)
