"""Statistics of an epoch for the log, and the score on the calibration split after it.

Statistics are summed on the device without host synchronisation: the loss, the share of examples and the mean loss per
exit (the paper's increasing-loss property), and the share of the loss from hard examples of frequent classes and from
easy examples of rare classes.
"""

# Shapes: E exits, B batch, C classes, S steps of an epoch, N examples of the split, n examples of this process's shard

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elfnet.data.loading.feed import EvaluationFeed
from elfnet.data.types import Ints
from elfnet.evaluate.metrics import balanced_accuracy
from elfnet.evaluate.run import answers_at_full_depth
from elfnet.exits.training_rule import exit_taken
from elfnet.losses.cross_entropy import log_probability_of
from elfnet.models.staged import StagedNetwork
from elfnet.run.log import EpochRecord, IncreasingLoss
from elfnet.train.distributed import DistributedContext

LOW_CONFIDENCE = 0.1
HIGH_CONFIDENCE = 0.9


def increasing_loss(loss_by_exit: Sequence[float | None]) -> IncreasingLoss:
    """Whether the mean loss strictly increases from exit to exit: "holds", "does not hold", or "undefined".

    Undefined with a single exit, or if no example took one of the exits.
    """
    if len(loss_by_exit) < 2 or any(loss is None for loss in loss_by_exit):
        return "undefined"
    known = [loss for loss in loss_by_exit if loss is not None]
    return "holds" if all(a < b for a, b in pairwise(known)) else "does not hold"


class EpochStatistics:
    """Sums over the steps of one epoch.

    Args:
        scale: factor of the logits in the loss (see `BaseLoss`), for the probability of the true class.
        all_reduce: sums a tensor over all processes, in place.
    """

    def __init__(
        self,
        *,
        steps: int,
        exits: int,
        is_head_C: Tensor,
        scale: float,
        device: torch.device,
        all_reduce: Callable[[Tensor], Tensor] = lambda tensor: tensor,
    ) -> None:
        # Sums over many examples need float64, which Apple's GPUs do not have.
        dtype = torch.float32 if device.type == "mps" else torch.float64

        def zeros(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        # One tensor for all sums, so that one all_reduce is enough; the other names are views of it.
        self._sums = zeros(2 * exits + 4)
        self._count_E, self._loss_E = self._sums[:exits], self._sums[exits : 2 * exits]
        self._weighted, self._weight, self._low_head, self._high_tail = self._sums[2 * exits :]
        self._all_reduce = all_reduce
        self._loss_SE = zeros(steps, exits)
        self._is_head_C = is_head_C.to(device)
        self._scale = scale
        self._checked = 0
        self._done = 0

    @torch.no_grad()
    def add(
        self,
        logits_EBC: Tensor,
        target_B: Tensor,
        visited_EB: Tensor,
        loss_EB: Tensor,
        weight_B: Tensor,
        *,
        ends_step: bool = True,
    ) -> None:
        """Add a step, or a part of it; `ends_step` marks the last part."""
        exit_B = exit_taken(visited_EB)
        loss_B = loss_EB.sum(dim=0).to(self._loss_E.dtype)
        self._count_E.index_add_(0, exit_B, torch.ones_like(loss_B))
        self._loss_E.index_add_(0, exit_B, loss_B)
        weighted_B = loss_B * weight_B
        self._weighted += weighted_B.sum()
        self._weight += weight_B.sum()
        logits_BC = logits_EBC[exit_B, torch.arange(len(exit_B), device=exit_B.device)]
        confidence_B = log_probability_of(self._scale * logits_BC.float(), target_B).exp()
        is_head_B = self._is_head_C[target_B]
        self._low_head += (weighted_B * (is_head_B & (confidence_B <= LOW_CONFIDENCE))).sum()
        self._high_tail += (weighted_B * (~is_head_B & (confidence_B >= HIGH_CONFIDENCE))).sum()
        self._loss_SE[self._done] += loss_EB.sum(dim=1)
        self._done += ends_step

    def first_not_finite(self) -> tuple[int, int] | None:
        """(step, exit) of the first loss since the last call that is not finite; None: all are finite.

        Waits for the device. The result is the same in every process.
        """
        bad_SE = ~self._all_reduce(self._loss_SE[self._checked : self._done].clone()).isfinite()
        if not bool(bad_SE.any()):
            self._checked = self._done
            return None
        step, k = bad_SE.nonzero()[0].tolist()
        return self._checked + step, k

    def record(self, epoch: int, *, learning_rate: float, weights: str) -> EpochRecord:
        """The log record of the epoch, with the statistics of all processes together.

        Args:
            learning_rate: of the last step.
            weights: name of the class weights in use.
        """
        exits = len(self._count_E)
        sums = self._all_reduce(self._sums.clone()).tolist()
        count_E, loss_E = sums[:exits], sums[exits : 2 * exits]
        weighted, weight, low_head, high_tail = sums[2 * exits :]
        total = max(sum(count_E), 1)
        average = [loss / n if n else None for loss, n in zip(loss_E, count_E, strict=True)]
        return EpochRecord(
            epoch=epoch,
            learning_rate=learning_rate,
            weights=weights,
            loss=weighted / weight,
            exit_share=tuple(n / total for n in count_E),
            loss_by_exit=tuple(average),
            increasing_loss=increasing_loss(average),
            low_confidence_head_loss_share=low_head / weighted if weighted else None,
            high_confidence_tail_loss_share=high_tail / weighted if weighted else None,
        )


def predictions(
    network: StagedNetwork, batches: EvaluationFeed, examples: int, *, precision: str, processes: DistributedContext
) -> Ints:
    """Predicted class of every example of a split at full depth, shape (N,); -1 for unreadable examples.

    Every process predicts its shard and returns the predictions of all processes.
    """
    first, end = processes.shard.bounds(examples)
    # Shifted by one, so that examples of other shards add 0 to the sum.
    known_N = torch.zeros(2, examples, dtype=torch.int64)
    if end > first:
        prediction_n = answers_at_full_depth(network, batches, precision=precision)
        rows_n = torch.from_numpy(batches.rows())
        known_N[0, rows_n] = torch.from_numpy(prediction_n) + 1
        known_N[1, rows_n] = 1
    prediction_N, times_N = processes.all_reduce(known_N.to(processes.fabric.device)).cpu()
    assert int(times_N.max()) <= 1, "an example was predicted twice"
    return np.asarray(prediction_N - 1)


def calibration_score(prediction_N: Ints, labels_N: Ints) -> float:
    """Balanced accuracy over the readable examples."""
    read_N = prediction_N >= 0
    return balanced_accuracy(prediction_N[read_N], labels_N[read_N])


def best_test_epoch(log: Sequence[EpochRecord]) -> dict[str, Any] | None:
    """The epoch (0-based) with the highest test accuracy in the log of a run; None if test was not scored.

    Some published code reports this figure. It is selected on test, so it is too high, and nothing else may use it.
    """
    scored = [(record.test_accuracy, record.epoch) for record in log if record.test_accuracy is not None]
    if not scored:
        return None
    accuracy, epoch = max(scored, key=lambda pair: pair[0])
    return {"epoch": epoch, "accuracy": accuracy, "selected_on": "test"}
