"""Accuracy beside an implementation that shares only the images with the package: the baselines must not be weak.

The script below is what one writes from the papers in an afternoon: its own network, crops, order, schedule and losses,
with torch's optimiser. The mean of two seeds is compared, since either moves by a point or two with chance.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from elfnet.data.build import load_splits
from elfnet.data.types import LabelledImages
from elfnet.evaluate.run import evaluate_run
from elfnet.recipe.load import load_recipe
from elfnet.recipe.schema import Recipe
from elfnet.train.run import train_recipe

EPOCHS, BATCH, LR, SEEDS = 20, 32, 0.05, (0, 1)
POINTS_BELOW = 1.5


class Block(nn.Module):
    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.stride = after // before
        self.first = nn.Conv2d(before, after, 3, self.stride, 1, bias=False)
        self.second = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(after), nn.BatchNorm2d(after)])

    def forward(self, x: Tensor) -> Tensor:
        y = self.norms[1](self.second(self.norms[0](self.first(x)).relu()))
        x = x[:, :, :: self.stride, :: self.stride]
        new = (y.shape[1] - x.shape[1]) // 2
        return functional.relu(y + functional.pad(x, (0, 0, 0, 0, new, new)))


class Network(nn.Module):
    """ResNet-8; cosines instead of logits if asked."""

    def __init__(self, classes: int, *, cosines: bool) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        self.blocks = nn.Sequential(Block(16, 16), Block(16, 32), Block(32, 64))
        self.linear = nn.Linear(64, classes, bias=not cosines)
        self.cosines = cosines
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(module.weight)

    def forward(self, x: Tensor) -> Tensor:
        features = self.blocks(self.stem(x)).mean(dim=(2, 3))
        if not self.cosines:
            return self.linear(features)  # type: ignore[no-any-return]
        return functional.normalize(features) @ functional.normalize(self.linear.weight).T


def pixels(images: LabelledImages) -> Tensor:
    return torch.from_numpy(images.images_NHWC).permute(0, 3, 1, 2).float() / 255


def crops(x: Tensor, random: np.random.Generator) -> Tensor:
    wide, size = functional.pad(x, (4, 4, 4, 4)), x.shape[-1]
    corners = random.integers(0, 9, (len(x), 2))
    return torch.stack([one[:, i : i + size, j : j + size] for one, (i, j) in zip(wide, corners, strict=True)])


def independent_accuracy(recipe: Recipe, *, seed: int, ldam: bool, deferred: bool, mixup: bool) -> float:
    splits = load_splits(recipe.data)
    assert isinstance(splits.train, LabelledImages)
    x, y = pixels(splits.train), torch.from_numpy(splits.train.labels_N)
    mean, deviation = x.mean(), x.std()
    counts = torch.bincount(y).double()
    weights = (1 - 0.9999) / (1 - 0.9999**counts)
    weights = (weights / weights.mean()).float()
    margins = (0.5 * (counts.min() / counts) ** 0.25).float()
    torch.manual_seed(1000 + seed)
    random = np.random.default_rng(1000 + seed)
    network = Network(len(counts), cosines=ldam)
    optimiser = torch.optim.SGD(network.parameters(), lr=LR, momentum=0.9, weight_decay=2e-4)
    steps = -(-len(y) // BATCH)
    for epoch in range(EPOCHS):
        late = epoch >= EPOCHS * 0.8
        order = random.permutation(len(y))
        for step in range(steps):
            warm = min(1.0, (epoch + (step + 1) / steps) / (EPOCHS / 40))
            optimiser.param_groups[0]["lr"] = LR * warm * 0.01 ** (int(late) + int(epoch >= EPOCHS * 0.9))
            rows = torch.from_numpy(order[step * BATCH : (step + 1) * BATCH])
            images, labels = (crops(x[rows], random) - mean) / deviation, y[rows]
            share, other = 1.0, torch.arange(len(rows))
            if mixup:
                share, other = random.beta(1, 1), torch.from_numpy(random.permutation(len(rows)))
            logits = network(share * images + (1 - share) * images[other])
            if ldam:
                logits = 30 * (logits - functional.one_hot(labels, len(counts)) * margins[labels, None])
            weight = weights if deferred and late else None
            loss = share * functional.cross_entropy(logits, labels, weight)
            if mixup:
                loss = loss + (1 - share) * functional.cross_entropy(logits, labels[other], weight)
            optimiser.zero_grad()
            torch.autograd.backward(loss)
            optimiser.step()
    assert isinstance(splits.test, LabelledImages)
    network.eval()
    with torch.no_grad():
        answers = network((pixels(splits.test) - mean) / deviation).argmax(dim=1).numpy()
    return float((answers == splits.test.labels_N).mean())


def our_accuracy(recipe: Recipe, out: Path) -> float:
    table = evaluate_run(train_recipe(recipe, out))
    return float((table.logits_NEC[:, -1].argmax(axis=1) == table.labels_N).mean())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "what"),
    [
        ("ce-drw", {"ldam": False, "deferred": True, "mixup": False}),
        ("ldam-drw", {"ldam": True, "deferred": True, "mixup": False}),
        ("mixup", {"ldam": False, "deferred": False, "mixup": True}),
    ],
    ids=["ce-drw", "ldam-drw", "mixup"],
)
def test_is_no_weaker_than_an_independent_implementation(method: str, what: dict[str, Any], tmp_path: Path) -> None:
    settings: dict[str, Any] = {"train.epochs": EPOCHS, "train.evaluate_every": EPOCHS, "train.compile": "off"}
    settings |= {"train.batch_size": BATCH, "train.lr": LR, "train.threads": 1}
    recipes = [load_recipe(f"digits/{method}", {**settings, "train.seed": s}) for s in SEEDS]
    ours = [our_accuracy(recipe, tmp_path / f"seed{s}") for s, recipe in zip(SEEDS, recipes, strict=True)]
    theirs = [independent_accuracy(recipe, seed=s, **what) for s, recipe in zip(SEEDS, recipes, strict=True)]
    below = 100 * (float(np.mean(theirs)) - float(np.mean(ours)))
    assert below < POINTS_BELOW, f"ours {ours}, independent {theirs}"
