"""Schedules as pure functions of the epoch: nothing to restore, nothing to forget on resume.

A schedule is written for a reference length (200 epochs on CIFAR) and scaled to the length of the run: warm-up 5,
drops at 160 and 180 and re-weighting at 160 become 1, 32, 36 and 32 in 40 epochs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor

from elfnet.errors import RequestError


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Learning rate and deferral, already scaled to the run.

    Attributes:
        epochs: length of the run.
        lr: learning rate after warm-up.
        warmup: length of the linear warm-up, in (fractional) epochs.
        lr_steps: epochs at whose start the rate is multiplied by `lr_factor`.
        drw_start: first epoch, 0-based, in which class weights apply.
    """

    epochs: int
    lr: float
    warmup: float
    lr_steps: tuple[int, ...]
    lr_factor: float
    drw_start: int

    def learning_rate(self, epoch: int, step: int, steps_per_epoch: int) -> float:
        """Rate of a step; warm-up is linear in the fractional epoch, step by step, and never zero."""
        rate = self.lr
        for drop in self.lr_steps:
            if epoch >= drop:
                rate *= self.lr_factor
        done = epoch + (step + 1) / steps_per_epoch
        return rate * min(1.0, done / self.warmup) if self.warmup > 0 else rate


def scale_schedule(
    *,
    epochs: int,
    reference_epochs: int,
    lr: float,
    warmup_epochs: float,
    lr_steps: Sequence[int],
    lr_factor: float,
    drw_start: int,
) -> Schedule:
    """Scale the reference schedule to `epochs`; drops fall on whole epochs, rounded down so that each is reached.

    Example:
        >>> s = scale_schedule(epochs=40, reference_epochs=200, lr=0.1, warmup_epochs=5, lr_steps=[160, 180],
        ...                    lr_factor=0.01, drw_start=160)
        >>> s.warmup, s.lr_steps, s.drw_start
        (1.0, (32, 36), 32)
    """
    for name, at in [("train.drw_start", drw_start), *(("train.lr_steps", at) for at in lr_steps)]:
        if not 0 <= at < reference_epochs:
            raise RequestError(f"{name}={at} is never reached in train.schedule_epochs={reference_epochs}; lower it")
    factor = epochs / reference_epochs

    def whole(at: int) -> int:
        # 180 * (70 / 200) comes out a hair below 63.
        return floor(at * factor + 1e-9)

    return Schedule(
        epochs=epochs,
        lr=lr,
        warmup=warmup_epochs * factor,
        lr_steps=tuple(whole(at) for at in lr_steps),
        lr_factor=lr_factor,
        drw_start=whole(drw_start),
    )
