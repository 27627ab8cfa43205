"""Mixup (Zhang et al. 2018) and Manifold Mixup (Verma et al. 2019).

Mixup trains on weighted means of two images, with the same mean of their losses. Manifold Mixup does this to the
features at a depth that is drawn anew for every batch.
"""

# Shapes: E exits (one: plain networks only), B batch, b this process's part of it, C classes

import numpy as np
import torch
from torch import Tensor, nn

from elfnet.criterion.labels import Labels
from elfnet.data.loading.feed import Partners, TrainingBatch
from elfnet.methods.mixing import MixedBatch, MixSchedule, PairMixing
from elfnet.models.staged import StagedNetwork, reset_compiler


class Mixup(PairMixing):
    """Pairs within a batch, one share for all of them, as the authors' code has it."""

    def mix(self, batch: TrainingBatch, partners: Partners, share: float, rng: np.random.Generator) -> MixedBatch:  # noqa: ARG002
        # lerp keeps the memory layout that the images have.
        mixed = partners.images[partners.place_b].lerp(batch.images, share)
        return MixedBatch(mixed, Labels(batch.labels_b, partners.labels_r[partners.place_b], share))


class ManifoldMixup(PairMixing):
    """Draws the depth, too: the images, or the output of any part of the backbone but the last.

    A process needs the features of all partners, so it must hold the whole batch.

    Args:
        depths: number of depths to draw from.
    """

    def __init__(self, schedule: MixSchedule, depths: int) -> None:
        super().__init__(schedule)
        self._depths = depths

    def mix(self, batch: TrainingBatch, partners: Partners, share: float, rng: np.random.Generator) -> MixedBatch:
        assert len(partners.images) == len(batch.images), "several processes are refused"
        labels = Labels(batch.labels_b, partners.labels_r[partners.place_b], share)
        return self._batch(batch, labels, int(rng.integers(self._depths)), partners.place_b)

    def unmixed(self, batch: TrainingBatch, epoch: int) -> MixedBatch:  # noqa: ARG002
        """Every image is mixed with itself: the forward pass is the same."""
        itself_b = torch.arange(len(batch.labels_b), device=batch.labels_b.device)
        return self._batch(batch, Labels(batch.labels_b), 0, itself_b)

    @staticmethod
    def _batch(batch: TrainingBatch, labels: Labels, depth: int, partner_b: Tensor) -> MixedBatch:
        # A tensor, so that a compiled forward pass does not become one graph for every share.
        share = torch.tensor(labels.share, dtype=torch.float32, device=batch.images.device)
        return MixedBatch(batch.images, labels, {"depth": depth, "partner_B": partner_b, "share": share})


class ManifoldForward(nn.Module):
    """The forward pass of a plain network, mixed at a depth: before part `depth` of its backbone."""

    def __init__(self, network: StagedNetwork) -> None:
        super().__init__()
        self.network = network
        self._compiled_batch: int | None = None
        self._run = self._mixed

    @property
    def depths(self) -> int:
        return len(_parts(self.network))

    def compile_for(self, batch_size: int, *, image_sizes: int = 1) -> None:
        """Compile in place: one static graph per depth and image size; a smaller last batch runs uncompiled."""
        reset_compiler(graphs=2 * self.depths * image_sizes)
        self._compiled_batch = batch_size
        self._run = torch.compile(self._mixed, dynamic=False)

    def forward(
        self, images: Tensor, target_B: Tensor, *, depth: int, partner_B: Tensor, share: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Logits (1, B, C), and that everybody visited the one exit (1, B)."""
        run = self._run if self._compiled_batch in (None, len(images)) else self._mixed
        logits_BC = run(images, depth, partner_B, share)
        return logits_BC[None], torch.ones_like(target_B, dtype=torch.bool)[None]

    def _mixed(self, images: Tensor, depth: int, partner_B: Tensor, share: Tensor) -> Tensor:
        features = images
        for number, part in enumerate(_parts(self.network)):
            if number == depth:
                features = features[partner_B].lerp(features, share.to(features.dtype))
            features = part(features)
        logits_BC: Tensor = self.network.heads[0](features)
        return logits_BC


def _parts(network: StagedNetwork) -> list[nn.Module]:
    """A plain network is one stage, made of the parts that exits would be put behind."""
    return list(network.stages[0].children())
