"""BBN (Zhou et al. 2020): one branch for the original data, one for rare classes, and a gradual shift between them.

Every step runs two batches through a shared backbone, one after the other, and then each through its own branch. The
first batch is sampled uniformly from the images, the second mostly from rare classes. With share a of the first branch,
one classifier reads [2 a f, 2 (1 - a) g] of the pooled features f and g of both branches, and the loss is a L(first
label) + (1 - a) L(second label). The share falls from 1 to 0 during training; at inference it is 0.5. A step costs as
much as two steps of an ordinary network.
"""

# Shapes: B batch of each branch, b both batches of this process, C classes

import torch
from torch import Tensor, nn

from elfnet.data.loading.feed import TrainingBatch
from elfnet.losses.base import Labels
from elfnet.methods.mixing import MixedBatch
from elfnet.models.staged import StagedNetwork, reset_compiler
from elfnet.models.two_branches import TwoBranchHead


class CumulativeSchedule:
    """Pairs the first half of a batch with the second; the share of the first is 1 - (epoch / epochs)^2."""

    def __init__(self, epochs: int) -> None:
        self._epochs = epochs

    def share(self, epoch: int) -> float:
        """The weight of the first branch in `epoch`, counted from 0."""
        return 1.0 - (epoch / self._epochs) ** 2

    def __call__(self, batch: TrainingBatch, epoch: int) -> MixedBatch:
        half, share = len(batch.labels_b) // 2, self.share(epoch)
        labels = Labels(batch.labels_b[:half], batch.labels_b[half:], share)
        # A tensor, so that a compiled forward pass does not need one graph per share. `full` waits for nothing.
        share_tensor = torch.full((), share, dtype=torch.float32, device=batch.images.device)
        return MixedBatch(batch.images, labels, {"share": share_tensor})


class BilateralForward(nn.Module):
    """The forward pass of BBN: two batches, one through each branch of a two-branch network."""

    def __init__(self, network: StagedNetwork) -> None:
        super().__init__()
        self.network = network
        self._compiled_images: int | None = None
        self._run = self._run_branches

    def compile_for(self, batch_size: int, *, image_sizes: int = 1) -> None:
        """Compile in place: one static graph per image size for two full batches; smaller batches run uncompiled."""
        reset_compiler(graphs=2 * image_sizes)
        self._compiled_images = 2 * batch_size
        self._run = torch.compile(self._run_branches, dynamic=False)

    def forward(self, images: Tensor, target_B: Tensor, *, share: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits (1, B, C) and the visited exits (1, B), which are all true."""
        run = self._run if self._compiled_images in (None, len(images)) else self._run_branches
        return run(images, share)[None], torch.ones_like(target_B, dtype=torch.bool)[None]

    def _run_branches(self, images: Tensor, share: Tensor) -> Tensor:
        head, half = self.network.heads[0], len(images) // 2
        assert isinstance(head, TwoBranchHead)
        # Two passes: batch norm in training must not mix the statistics of the two samplers.
        frequent, rare = (self.network.stages[0](part) for part in (images[:half], images[half:]))
        return head.classify(head.trunk.mix(frequent, rare, share))
