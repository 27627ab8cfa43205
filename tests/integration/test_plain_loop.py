"""Baselines against a plain loop that shares nothing with the package but the network and the batches.

It writes out the schedule, the class weights, the losses and the optimiser's step by hand, as one would in a script; if
both end with the same weights, then the baseline is what its paper says.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from elfnet.data.build import load_splits
from elfnet.data.images.transforms import Augmentation
from elfnet.data.loading.feed import BatchSource, SampledFeed
from elfnet.data.loading.memory import AugmentedSource, CropFlipSource
from elfnet.data.loading.normalise import Normalisation
from elfnet.data.types import LabelledImages
from elfnet.models.build import build_network
from elfnet.recipe.schema import Recipe
from elfnet.run.checkpoint import load_checkpoint
from elfnet.train.run import train_recipe

EPOCHS, MOMENTUM, DECAY, BATCH = 3, 0.9, 2e-4, 32
WARM_UP, DROPS, DEFERRED = EPOCHS * 5 / 200, (2, 2), 2  # of 200 epochs: 5, (160, 180), 160, rounded down
# Not the recipe's 0.01, at which nothing would move any more once the class weights are in force.
DROP = 0.7


def _learning_rate(lr: float, epoch: int, step: int, steps: int) -> float:
    warm = (epoch + (step + 1) / steps) / WARM_UP
    return lr * min(1.0, warm) * math.prod(DROP for drop in DROPS if epoch >= drop)


def _effective_weights(counts: list[int]) -> Tensor:
    weights = torch.tensor([(1 - 0.9999) / (1 - 0.9999**n) for n in counts], dtype=torch.float64)
    return (weights / weights.sum() * len(counts)).float()


def _ldam(logits: Tensor, target: Tensor, counts: list[int]) -> Tensor:
    margins = torch.tensor([n**-0.25 for n in counts])
    margins = margins / margins.max() * 0.5
    lowered = logits.clone()
    for i, y in enumerate(target.tolist()):
        lowered[i, y] = logits[i, y] - margins[y]
    return functional.cross_entropy(30 * lowered, target, reduction="none")


def _cross_entropy(logits: Tensor, target: Tensor, counts: list[int]) -> Tensor:  # noqa: ARG001
    return functional.cross_entropy(logits, target, reduction="none")


def _numbers_of_step(epoch: int, step: int) -> tuple[np.random.Generator, np.random.Generator]:
    """Two streams of random numbers, a function of (seed, epoch, step); the seed is 0."""
    first, second = (np.random.SeedSequence([0, epoch], spawn_key=(stream, step)) for stream in (0, 1))
    return np.random.default_rng(first), np.random.default_rng(second)


def _plain_loop(
    recipe: Recipe, loss_of: Callable[[Tensor, Tensor, list[int]], Tensor], *, deferred: bool, mixup: bool, head: str
) -> dict[str, Tensor]:
    splits = load_splits(recipe.data)
    assert isinstance(splits.train, LabelledImages)
    counts = splits.class_counts_C.tolist()
    images_NHWC, normalisation, cpu = splits.train.images_NHWC, Normalisation.of(splits.train), torch.device("cpu")
    pad = recipe.data.pad
    source: BatchSource = CropFlipSource(images_NHWC, normalisation, pad=pad, flip=False, device=cpu)
    if mixup:
        augmentation = Augmentation(crop="padded", flip=False, pad=pad)
        source = AugmentedSource(images_NHWC, augmentation, normalisation, seed=0, device=cpu)
    batches = SampledFeed(source, splits.train.labels_N, batch_size=BATCH, seed=0, device=cpu, channels_last=False)
    torch.manual_seed(0)
    network = build_network(recipe.model.backbone, classes=10, image_channels=1, exits=False, head=head)
    momentum = {name: torch.zeros_like(p) for name, p in network.named_parameters()}
    network.train()
    for epoch in range(EPOCHS):
        torch.manual_seed(epoch)
        weights = _effective_weights(counts) if deferred and epoch >= DEFERRED else torch.ones(10)
        for step, batch in enumerate(batches.epoch(epoch)):
            images, target = batch.images, batch.labels_b
            share, partner = 1.0, torch.arange(len(target))
            if mixup:
                whether_and_with_whom, how_much = _numbers_of_step(epoch, step)
                assert whether_and_with_whom.random() < 1
                partner = torch.from_numpy(whether_and_with_whom.permutation(len(target)))
                share = how_much.beta(1.0, 1.0)
                images = share * images + (1 - share) * images[partner]
            logits = network(images)[0]
            total = share * weights[target] * loss_of(logits, target, counts)
            weight = share * weights[target]
            if mixup:
                total = total + (1 - share) * weights[target[partner]] * loss_of(logits, target[partner], counts)
                weight = weight + (1 - share) * weights[target[partner]]
            network.zero_grad()
            torch.autograd.backward(total.sum() / weight.sum())
            with torch.no_grad():
                for name, p in network.named_parameters():
                    assert p.grad is not None
                    momentum[name] = MOMENTUM * momentum[name] + p.grad + DECAY * p
                    p.sub_(_learning_rate(recipe.train.lr, epoch, step, len(batches)) * momentum[name])
    return network.state_dict()


@pytest.mark.parametrize(
    # Small rates: at large ones, differences in the last bit of float32 grow into other weights within a few epochs.
    ("method", "lr", "loss_of", "settings"),
    [
        ("ce-drw", 0.003, _cross_entropy, {"deferred": True, "mixup": False, "head": "linear"}),
        ("ldam-drw", 0.0003, _ldam, {"deferred": True, "mixup": False, "head": "cosine"}),
        ("mixup", 0.001, _cross_entropy, {"deferred": False, "mixup": True, "head": "linear"}),
    ],
    ids=["ce-drw", "ldam-drw", "mixup"],
)
def test_a_plain_loop_ends_at_the_same_weights(
    tiny: Callable[..., Recipe],
    tmp_path: Path,
    method: str,
    lr: float,
    loss_of: Callable[[Tensor, Tensor, list[int]], Tensor],
    settings: dict[str, Any],
) -> None:
    recipe = tiny(
        method,
        train__epochs=EPOCHS,
        train__lr=lr,
        train__lr_factor=DROP,
        train__batch_size=BATCH,
        train__channels_last="off",
        train__precision="float32",
    )
    ours = load_checkpoint(train_recipe(recipe, tmp_path / "run").checkpoint("last")).weights
    theirs = _plain_loop(recipe, loss_of, **settings)
    assert ours.keys() == theirs.keys()
    torch.manual_seed(0)
    start = build_network(recipe.model.backbone, classes=10, image_channels=1, exits=False, head=settings["head"])
    for name, weights in start.named_parameters():
        way, apart = (theirs[name] - weights.detach()).norm(), (theirs[name] - ours[name]).norm()
        assert float(apart) < 0.01 * float(way), f"{name} ends {float(apart / way):.3f} of its way apart"
