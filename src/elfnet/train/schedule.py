"""Schedules of the learning rate, of deferred re-weighting and of the image size, as pure functions of the epoch.

They have no state, so a resumed run has nothing to restore. A schedule is written for a reference length (200 epochs
on CIFAR) and scaled to the length of the run: warm-up 5, drops at 160 and 180 and re-weighting at 160 become 1, 32, 36
and 32 in 40 epochs.

Progressive resizing shows small images in early epochs and full images in the last ones. Early epochs learn coarse
features, for which small images suffice. The cost of a convolution is proportional to the area, so half the side takes
a quarter of the multiply-adds.
"""

# Shapes: B batch, K channels, H height, W width

from collections.abc import Sequence
from dataclasses import dataclass
from math import cos, floor, pi
from typing import Literal

from torch import Tensor
from torch.nn import functional

from elfnet.errors import RequestError

ScheduleKind = Literal["steps", "cosine", "one-cycle"]

ONE_CYCLE_START, ONE_CYCLE_END = 25.0, 1e4
"""A one-cycle schedule starts at lr / ONE_CYCLE_START and ends at this start / ONE_CYCLE_END."""


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Learning rate and start of re-weighting, scaled to the length of the run.

    Attributes:
        kind: `steps`: the rate drops at given epochs. `cosine`: it falls to zero along half a cosine. `one-cycle`: it
            rises along half a cosine during the warm-up and falls along another one to almost zero.
        epochs: length of the run.
        lr: the highest learning rate.
        warmup: length of the warm-up, in (fractional) epochs; linear unless the kind is `one-cycle`.
        lr_steps: epochs at whose start the rate of `steps` is multiplied by `lr_factor`.
        drw_start: first epoch, 0-based, in which class weights apply.
        first_epoch: the 0-based epoch of the run in which the schedule starts.
        per_epoch: whether warm-up and cosine advance once per epoch instead of per step. The warm-up then has the rate
            lr (epoch + 1) / warmup in all steps of an epoch.
    """

    kind: ScheduleKind = "steps"
    epochs: int
    lr: float
    warmup: float
    lr_steps: tuple[int, ...]
    lr_factor: float
    drw_start: int
    first_epoch: int = 0
    per_epoch: bool = False

    def learning_rate(self, epoch: int, step: int, steps_per_epoch: int) -> float:
        """Learning rate of a step, never zero."""
        epoch -= self.first_epoch
        if self.per_epoch:
            step, steps_per_epoch = 0, 1
        if self.kind == "one-cycle":
            return self._one_cycle(epoch * steps_per_epoch + step, steps_per_epoch)
        rate = self._cosine(epoch + step / steps_per_epoch) if self.kind == "cosine" else self._steps(epoch)
        done = epoch + (step + 1) / steps_per_epoch
        return rate * min(1.0, done / self.warmup) if self.warmup > 0 else rate

    def _steps(self, epoch: int) -> float:
        rate = self.lr
        for drop in self.lr_steps:
            if epoch >= drop:
                rate *= self.lr_factor
        return rate

    def _cosine(self, elapsed: float) -> float:
        """The full rate until the warm-up ends, then half a cosine that reaches zero one step after the last."""
        progress = max(0.0, elapsed - self.warmup) / (self.epochs - self.warmup)
        return self.lr * (1 + cos(pi * progress)) / 2

    def _one_cycle(self, step: int, steps_per_epoch: int) -> float:
        """As `torch.optim.lr_scheduler.OneCycleLR` with its defaults."""
        total = self.epochs * steps_per_epoch
        peak = max(self.warmup * steps_per_epoch - 1, 0.0)
        start = self.lr / ONE_CYCLE_START
        if step < peak:
            return _half_cosine(start, self.lr, step / peak)
        return _half_cosine(self.lr, start / ONE_CYCLE_END, (step - peak) / max(total - 1 - peak, 1.0))


def _half_cosine(first: float, last: float, progress: float) -> float:
    """Cosine interpolation from `first` (progress 0) to `last` (progress 1)."""
    return last + (first - last) * (1 + cos(pi * progress)) / 2


def scale_schedule(
    *,
    epochs: int,
    reference_epochs: int,
    lr: float,
    warmup_epochs: float,
    lr_steps: Sequence[int],
    lr_factor: float,
    drw_start: int,
    kind: ScheduleKind = "steps",
    per_epoch: bool = False,
) -> Schedule:
    """Scale a reference schedule to `epochs`. Drops are rounded down to whole epochs, so that each is reached.

    Example:
        >>> s = scale_schedule(epochs=40, reference_epochs=200, lr=0.1, warmup_epochs=5, lr_steps=[160, 180],
        ...                    lr_factor=0.01, drw_start=160)
        >>> s.warmup, s.lr_steps, s.drw_start
        (1.0, (32, 36), 32)
    """
    drops = [("train.lr_steps", at) for at in lr_steps] if kind == "steps" else []
    for name, at in [("train.drw_start", drw_start), *drops]:
        if not 0 <= at < reference_epochs:
            problem = "is negative" if at < 0 else f"is never reached in train.schedule_epochs={reference_epochs}"
            raise RequestError(f"{name}={at} {problem}; give 0 to {reference_epochs - 1}")
    if warmup_epochs >= reference_epochs:
        raise RequestError(
            f"train.warmup_epochs={warmup_epochs:g} leaves nothing of train.schedule_epochs={reference_epochs} for "
            f"train.schedule={kind}; lower it"
        )
    factor = epochs / reference_epochs

    def scaled(at: int) -> int:
        # In floating point, 180 * (70 / 200) is slightly below 63.
        return floor(at * factor + 1e-9)

    return Schedule(
        kind=kind,
        epochs=epochs,
        lr=lr,
        warmup=warmup_epochs * factor,
        lr_steps=tuple(scaled(at) for at in lr_steps),
        lr_factor=lr_factor,
        drw_start=scaled(drw_start),
        per_epoch=per_epoch,
    )


STEPS = 8
"""Sides are multiples of 1 / STEPS of the full side. Each side needs its own compiled graph, so there are few."""


@dataclass(frozen=True)
class ProgressiveResizing:
    """The side of training images as a pure function of the epoch.

    Attributes:
        start: side in the first epoch, as a fraction of the full side, in (0, 1).
        until: fraction of the epochs after which images have their full side, as they have in the last epoch anyway.
        epochs: length of the run.
    """

    start: float
    until: float
    epochs: int

    def share(self, epoch: int) -> float:
        """Side in a 0-based epoch, as a fraction of the full side.

        Example:
            >>> [ProgressiveResizing(0.5, 0.8, 10).share(epoch) for epoch in (0, 2, 4, 6, 8)]
            [0.5, 0.625, 0.75, 0.875, 1.0]
        """
        # The last epoch has full images, however short the run is: the network is evaluated on those.
        growing = min(self.until * self.epochs, self.epochs - 1)
        if epoch >= growing:
            return 1.0
        return round(STEPS * (self.start + (1 - self.start) * epoch / growing)) / STEPS

    @property
    def sizes(self) -> int:
        """Number of different sides in the run."""
        return len({self.share(epoch) for epoch in range(self.epochs)})

    def size(self, height: int, width: int, epoch: int) -> tuple[int, int]:
        """Height and width in a 0-based epoch of images with this full size."""
        share = self.share(epoch)
        return max(1, round(share * height)), max(1, round(share * width))

    def __call__(self, images: Tensor, epoch: int) -> Tensor:
        """Resize images (B, K, H, W) to the side of the epoch, bilinear with anti-aliasing."""
        if self.share(epoch) == 1.0 or not len(images):
            return images
        size = self.size(images.shape[2], images.shape[3], epoch)
        return functional.interpolate(images, size=size, mode="bilinear", antialias=True)
