"""Mixing of training examples: Mixup (Zhang et al. 2018), Manifold Mixup (Verma et al. 2019), CutMix (Yun et al. 2019).

A `Mixing` turns a batch into the images and labels that the network is trained on (`MixedBatch`). `PairMixing` is the
base class of methods that mix each example with a partner. `MinorityCutMix` is CMO (Park et al. 2022): CutMix with
patches of rare classes.
"""

# Shapes: N training examples, C classes, B batch of all processes, b this process's part of it, r examples to read

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from elfnet.data.loading.feed import Partners, Request, TrainingBatch
from elfnet.data.loading.sampler import step_rng
from elfnet.data.types import Ints
from elfnet.losses.base import Labels
from elfnet.models.staged import StagedNetwork, reset_compiler

# Separate streams of random numbers within a step.
PARTNERS, SHARES = 0, 1

# Patches have random numbers of their own for augmentation: other ones than the same image has as part of the batch.
FIRST_PATCH = 1 << 40
PATCHES_PER_STEP = 1 << 20


@dataclass(frozen=True)
class MixedBatch:
    """The images and labels that the network is trained on in one step.

    Attributes:
        forward: keyword arguments for the forward pass that belongs to the mixing.
        rows_b: the row of each example in the training split; None if examples are mixed.
    """

    images: Tensor
    labels: Labels
    forward: dict[str, Tensor | int] = field(default_factory=dict)
    rows_b: Tensor | None = None


class Mixing(Protocol):
    """A function from a batch of the training feed to what the network is trained on."""

    def __call__(self, batch: TrainingBatch, epoch: int) -> MixedBatch: ...


@dataclass(frozen=True, kw_only=True)
class MixSchedule:
    """Which batches are mixed, and how shares are drawn.

    Args:
        seed: the training seed.
        alpha: shares are drawn from Beta(alpha, alpha).
        epochs: the number of epochs of the run.
        off_epochs: the number of epochs without mixing, at the start and again at the end of the run.
        probability: the probability that a batch is mixed in the other epochs.
    """

    seed: int
    alpha: float
    epochs: int
    off_epochs: int = 0
    probability: float = 1.0

    def is_mixed(self, epoch: int, rng: np.random.Generator) -> bool:
        """Decide whether a batch of this epoch is mixed."""
        return self.off_epochs <= epoch < self.epochs - self.off_epochs and rng.random() < self.probability


class PairMixing(ABC):
    """Base class of methods that mix each example of a batch with a partner; one share per batch.

    All random numbers are functions of (seed, epoch, step) and equal in every process. `partners` tells the feed which
    partners to read (the `Pairing` interface). Calling the object mixes the batch that the feed returned.
    """

    def __init__(self, schedule: MixSchedule) -> None:
        self._schedule = schedule

    def partners(self, epoch: int, step: int, batch: Request) -> Request | None:
        """The partner of each example of the batch of all processes; None if this batch is not mixed."""
        rng = step_rng(self._schedule.seed, epoch, step, PARTNERS)
        return self.draw_partners(batch, step, rng) if self._schedule.is_mixed(epoch, rng) else None

    def __call__(self, batch: TrainingBatch, epoch: int) -> MixedBatch:
        if batch.partners is None:
            return self.unmixed(batch)
        rng = step_rng(self._schedule.seed, epoch, batch.step, SHARES)
        share = float(rng.beta(self._schedule.alpha, self._schedule.alpha))
        return self.mix(batch, batch.partners, share, rng)

    def draw_partners(self, batch: Request, step: int, rng: np.random.Generator) -> Request:  # noqa: ARG002
        """Draw the partner of each example; by default a permutation of the batch."""
        partner_B = rng.permutation(len(batch.rows_r))
        return Request(batch.rows_r[partner_B], batch.repeat_r[partner_B])

    def unmixed(self, batch: TrainingBatch) -> MixedBatch:
        """Return a batch that is not mixed, in the form that the forward pass expects."""
        return MixedBatch(batch.images, Labels(batch.labels_b), rows_b=batch.rows_b)

    @abstractmethod
    def mix(self, batch: TrainingBatch, partners: Partners, share: float, rng: np.random.Generator) -> MixedBatch:
        """Mix a batch with its partners.

        Args:
            share: the weight of the batch, drawn from the Beta distribution; the partners have weight 1 - share.
            rng: random numbers for all other draws.
        """


class Mixup(PairMixing):
    """Mixup: convex combinations of images within a batch, with one share per batch, as in the authors' code."""

    def mix(self, batch: TrainingBatch, partners: Partners, share: float, rng: np.random.Generator) -> MixedBatch:  # noqa: ARG002
        """Interpolate images and labels."""
        # lerp keeps the memory layout of the images.
        mixed = partners.images[partners.place_b].lerp(batch.images, share)
        return MixedBatch(mixed, Labels(batch.labels_b, partners.labels_r[partners.place_b], share))


class ManifoldMixup(PairMixing):
    """Manifold Mixup: mixes the images, or the output of any part of the backbone except the last.

    The depth is drawn per batch. A process needs the features of all partners, so training must run in one process.

    Args:
        depths: the number of depths to draw from.
    """

    def __init__(self, schedule: MixSchedule, depths: int) -> None:
        super().__init__(schedule)
        self._depths = depths

    def mix(self, batch: TrainingBatch, partners: Partners, share: float, rng: np.random.Generator) -> MixedBatch:
        """Draw the depth, and pass it to the forward pass, which mixes the features."""
        assert len(partners.images) == len(batch.images), "training in several processes is refused"
        labels = Labels(batch.labels_b, partners.labels_r[partners.place_b], share)
        return self._with_forward_arguments(batch, labels, int(rng.integers(self._depths)), partners.place_b)

    def unmixed(self, batch: TrainingBatch) -> MixedBatch:
        """Mix every image with itself, so that the forward pass needs no second case."""
        itself_b = torch.arange(len(batch.labels_b), device=batch.labels_b.device)
        return self._with_forward_arguments(batch, Labels(batch.labels_b), 0, itself_b)

    @staticmethod
    def _with_forward_arguments(batch: TrainingBatch, labels: Labels, depth: int, partner_b: Tensor) -> MixedBatch:
        # A tensor, so that a compiled forward pass does not need one graph per share. `full` waits for nothing.
        share = torch.full((), labels.share, dtype=torch.float32, device=batch.images.device)
        return MixedBatch(batch.images, labels, {"depth": depth, "partner_B": partner_b, "share": share})


class ManifoldForward(nn.Module):
    """The forward pass of Manifold Mixup: a network without exits, mixed before part `depth` of its backbone."""

    def __init__(self, network: StagedNetwork) -> None:
        super().__init__()
        self.network = network
        self._compiled_batch: int | None = None
        self._run = self._run_mixed

    @property
    def depths(self) -> int:
        """The number of depths at which features can be mixed."""
        return len(_backbone_parts(self.network))

    def compile_for(self, batch_size: int, *, image_sizes: int = 1) -> None:
        """Compile in place: one static graph per depth and image size; a smaller last batch runs uncompiled."""
        reset_compiler(graphs=2 * self.depths * image_sizes)
        self._compiled_batch = batch_size
        self._run = torch.compile(self._run_mixed, dynamic=False)

    def forward(
        self, images: Tensor, target_B: Tensor, *, depth: int, partner_B: Tensor, share: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return logits (1, B, C) and the visited exits (1, B), which are all true."""
        run = self._run if self._compiled_batch in (None, len(images)) else self._run_mixed
        logits_BC = run(images, depth, partner_B, share)
        return logits_BC[None], torch.ones_like(target_B, dtype=torch.bool)[None]

    def _run_mixed(self, images: Tensor, depth: int, partner_B: Tensor, share: Tensor) -> Tensor:
        features = images
        for number, part in enumerate(_backbone_parts(self.network)):
            if number == depth:
                features = features[partner_B].lerp(features, share.to(features.dtype))
            features = part(features)
        logits_BC: Tensor = self.network.heads[0](features)
        return logits_BC


def _backbone_parts(network: StagedNetwork) -> list[nn.Module]:
    """The parts of a network without exits. It is one stage, made of the stages of the network with exits."""
    return list(network.stages[0].children())


class Box(NamedTuple):
    """A box of pixels: rows `top` to `bottom` and columns `left` to `right`, the end excluded."""

    top: int
    left: int
    bottom: int
    right: int

    def share_outside(self, height: int, width: int) -> float:
        """The fraction of the image that lies outside the box."""
        return 1 - (self.bottom - self.top) * (self.right - self.left) / (height * width)


def draw_box(height: int, width: int, share: float, rng: np.random.Generator) -> Box:
    """Draw a box around a random pixel, with the aspect ratio of the image.

    The box is clipped to the image, so the fraction outside the box may be larger than `share`.

    Args:
        share: the fraction of the image outside the box, before clipping.
    """
    scale = math.sqrt(1 - share)
    half_height, half_width = int(height * scale) // 2, int(width * scale) // 2
    y, x = int(rng.integers(height)), int(rng.integers(width))
    return Box(
        max(y - half_height, 0), max(x - half_width, 0), min(y + half_height, height), min(x + half_width, width)
    )


class CutMix(PairMixing):
    """Pastes a box of another image of the batch into each image; one box per batch.

    The share of a label is the fraction of the image that shows it.
    """

    def mix(self, batch: TrainingBatch, partners: Partners, share: float, rng: np.random.Generator) -> MixedBatch:
        """Paste the box, and share the label by the area of the box."""
        height, width = batch.images.shape[2:]
        box = draw_box(height, width, share, rng)
        rows, columns = slice(box.top, box.bottom), slice(box.left, box.right)
        mixed = batch.images.clone()
        mixed[:, :, rows, columns] = partners.images[:, :, rows, columns][partners.place_b]
        labels = Labels(batch.labels_b, partners.labels_r[partners.place_b], box.share_outside(height, width))
        return MixedBatch(mixed, labels)


class MinorityCutMix(CutMix):
    """CutMix with patches of rare classes, from images of the whole training split.

    A class with n images is drawn with a probability proportional to 1 / n, then one of its images uniformly.

    Args:
        labels_N: the labels of the training split.
    """

    def __init__(self, schedule: MixSchedule, labels_N: Ints) -> None:
        super().__init__(schedule)
        self._by_class_N = np.argsort(labels_N, kind="stable")
        self._count_C = np.bincount(labels_N)
        self._first_C = np.cumsum(self._count_C) - self._count_C
        # Classes without an example are not drawn.
        weight_C = np.where(self._count_C > 0, 1 / np.maximum(self._count_C, 1), 0)
        self._probability_C = weight_C / weight_C.sum()

    def draw_partners(self, batch: Request, step: int, rng: np.random.Generator) -> Request:
        """Draw one image per example of the batch, mostly of rare classes."""
        class_B = rng.choice(len(self._count_C), size=len(batch.rows_r), p=self._probability_C)
        within_B = (rng.random(len(class_B)) * self._count_C[class_B]).astype(np.int64)
        rows_B = self._by_class_N[self._first_C[class_B] + within_B]
        return Request(rows_B, FIRST_PATCH + step * PATCHES_PER_STEP + np.arange(len(rows_B)))
