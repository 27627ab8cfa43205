"""What is made of a batch before the network sees it: nothing, or a mixture of pairs of examples."""

# Shapes: B batch of all processes, b this process's part of it
# Shapes: E exits (one: plain networks only), B batch, b this process's part of it, C classes

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from elfnet.data.loading.feed import Partners, Request, TrainingBatch
from elfnet.data.loading.sampler import step_rng
from elfnet.losses.base import Labels
from elfnet.models.staged import StagedNetwork, reset_compiler

# Streams of random numbers of a step.
PARTNERS, SHARES = 0, 1


@dataclass(frozen=True)
class MixedBatch:
    """Images, what they are to be classified as, and what else the forward pass needs to know.

    Attributes:
        forward: arguments by name, for the forward pass that belongs to the mixing.
        rows_b: the position of each example in the training split; None where examples are mixed.
    """

    images: Tensor
    labels: Labels
    forward: dict[str, Tensor | int] = field(default_factory=dict)
    rows_b: Tensor | None = None

    def parts(self, number: int) -> "list[MixedBatch]":
        """The batch in several parts; parts without an example are left out, unless all are."""
        if number == 1:
            return [self]
        assert not self.forward, "what is mixed inside the network is not cut; the recipe refuses it"
        labels = self.labels

        def split(tensor: Tensor | None) -> Sequence[Tensor | None]:
            return [None] * number if tensor is None else tensor.tensor_split(number)

        cut = [
            MixedBatch(images, Labels(first_b, second_b, labels.share, importance_b), rows_b=rows_b)
            for images, first_b, second_b, importance_b, rows_b in zip(
                self.images.tensor_split(number),
                labels.first_B.tensor_split(number),
                split(labels.second_B),
                split(labels.importance_B),
                split(self.rows_b),
                strict=True,
            )
        ]
        return [part for part in cut if len(part.images)] or cut[:1]


class Mixing(Protocol):
    """Makes what the network is trained on out of a batch."""

    def __call__(self, batch: TrainingBatch, epoch: int) -> MixedBatch: ...


def unmixed(batch: TrainingBatch, epoch: int) -> MixedBatch:  # noqa: ARG001 (every mixing takes it)
    """The ordinary batch: every image is itself."""
    return MixedBatch(batch.images, Labels(batch.labels_b), rows_b=batch.rows_b)


@dataclass(frozen=True, kw_only=True)
class MixSchedule:
    """Which batches are mixed, and in what shares.

    Args:
        alpha: shares are drawn from Beta(alpha, alpha).
        epochs: length of the run.
        off_epochs: so many first epochs, and so many last ones, are not mixed.
        probability: of each other batch.
    """

    seed: int
    alpha: float
    epochs: int
    off_epochs: int = 0
    probability: float = 1.0

    def is_mixed(self, epoch: int, rng: np.random.Generator) -> bool:
        """Whether a batch of this epoch is mixed."""
        return self.off_epochs <= epoch < self.epochs - self.off_epochs and rng.random() < self.probability


class PairMixing(ABC):
    """Mixes each example of a batch with a partner, all with one share.

    Everything drawn is a function of (seed, epoch, step) and the same in every process. As a `Pairing` it tells the
    feed which partners to read; called with the batch that the feed made, it mixes them.
    """

    def __init__(self, schedule: MixSchedule) -> None:
        self._schedule = schedule

    def partners(self, epoch: int, step: int, batch: Request) -> Request | None:
        """The partner of each example of a whole batch; None: this batch is not mixed."""
        rng = step_rng(self._schedule.seed, epoch, step, PARTNERS)
        return self.draw_partners(batch, step, rng) if self._schedule.is_mixed(epoch, rng) else None

    def __call__(self, batch: TrainingBatch, epoch: int) -> MixedBatch:
        if batch.partners is None:
            return self.unmixed(batch, epoch)
        rng = step_rng(self._schedule.seed, epoch, batch.step, SHARES)
        share = float(rng.beta(self._schedule.alpha, self._schedule.alpha))
        return self.mix(batch, batch.partners, share, rng)

    def draw_partners(self, batch: Request, step: int, rng: np.random.Generator) -> Request:  # noqa: ARG002
        """Other examples of the same batch: a permutation of it."""
        partner_B = rng.permutation(len(batch.rows_r))
        return Request(batch.rows_r[partner_B], batch.repeat_r[partner_B])

    def unmixed(self, batch: TrainingBatch, epoch: int) -> MixedBatch:
        """What a batch becomes that is not mixed."""
        return unmixed(batch, epoch)

    @abstractmethod
    def mix(self, batch: TrainingBatch, partners: Partners, share: float, rng: np.random.Generator) -> MixedBatch:
        """Mix a batch with its partners.

        Args:
            share: drawn from the Beta distribution, for the batch; the rest is for the partners.
            rng: for whatever else is drawn.
        """


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
