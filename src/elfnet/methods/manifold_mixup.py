"""Manifold Mixup (Verma et al. 2019): mixup of the features at a depth that is drawn anew for every batch."""

# Shapes: E exits (one: plain networks only), B batch, C classes

import torch
from torch import Tensor, nn

from elfnet.criterion.labels import Labels
from elfnet.methods.mixing import MixedBatch, draw_partners, draw_share
from elfnet.models.staged import StagedNetwork, reset_compiler


class ManifoldMixup:
    """Draws the pairs, their share, and the depth: the images, or the output of any part of the backbone but the last.

    Args:
        depths: number of depths to draw from.
    """

    def __init__(self, alpha: float, depths: int) -> None:
        self._alpha, self._depths = alpha, depths

    def __call__(self, images: Tensor, target_B: Tensor, epoch: int) -> MixedBatch:  # noqa: ARG002
        share, partner_B = draw_share(self._alpha), draw_partners(target_B)
        depth = int(torch.randint(self._depths, ()))
        labels = Labels(target_B, target_B[partner_B], share)
        # A tensor, so that a compiled forward pass does not become one graph for every share.
        share_ = torch.tensor(share, dtype=torch.float32, device=images.device)
        return MixedBatch(images, labels, {"depth": depth, "partner_B": partner_B, "share": share_})


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
