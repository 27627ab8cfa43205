"""BBN (Zhou et al. 2020): a branch for the data as they are, one for rare classes, and a slow change-over.

Every step runs two batches, one drawn evenly from the images and one mostly from rare classes, through a shared
backbone and then each through its own branch. The logits are a weighted mean, and so is the loss; the weight of the
first falls from 1 to 0 as training goes on. A step costs two of an ordinary network.
"""

# Shapes: B batch of each branch, C classes

import torch
from torch import Tensor, nn

from elfnet.data.loading.feed import TrainingBatch
from elfnet.losses.base import Labels
from elfnet.methods.mixup import MixedBatch
from elfnet.models.build import TwoBranchHead
from elfnet.models.staged import StagedNetwork, reset_compiler


class CumulativeSchedule:
    """Takes the two halves of a batch as pairs, the share of the first being 1 - (epoch / epochs)^2."""

    def __init__(self, epochs: int) -> None:
        self._epochs = epochs

    def share(self, epoch: int) -> float:
        return 1.0 - (epoch / self._epochs) ** 2

    def __call__(self, batch: TrainingBatch, epoch: int) -> MixedBatch:
        half, share = len(batch.labels_b) // 2, self.share(epoch)
        labels = Labels(batch.labels_b[:half], batch.labels_b[half:], share)
        share_ = torch.tensor(share, dtype=torch.float32, device=batch.images.device)
        return MixedBatch(batch.images, labels, {"share": share_})


class BilateralForward(nn.Module):
    """The forward pass of two batches, one through each branch."""

    def __init__(self, network: StagedNetwork) -> None:
        super().__init__()
        self.network = network
        self._compiled_images: int | None = None
        self._run = self._both

    def compile_for(self, batch_size: int, *, image_sizes: int = 1) -> None:
        """Compile in place: one static graph per image size for two full batches; smaller last ones run uncompiled."""
        reset_compiler(graphs=2 * image_sizes)
        self._compiled_images = 2 * batch_size
        self._run = torch.compile(self._both, dynamic=False)

    def forward(self, images: Tensor, target_B: Tensor, *, share: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (1, B, C), and that everybody visited the one exit (1, B)."""
        run = self._run if self._compiled_images in (None, len(images)) else self._both
        return run(images, share)[None], torch.ones_like(target_B, dtype=torch.bool)[None]

    def _both(self, images: Tensor, share: Tensor) -> Tensor:
        features = self.network.stages[0](images)
        half = len(features) // 2
        head = self.network.heads[0]
        assert isinstance(head, TwoBranchHead)
        logits_BC: Tensor = share * head.frequent(features[:half]) + (1 - share) * head.rare(features[half:])
        return logits_BC
