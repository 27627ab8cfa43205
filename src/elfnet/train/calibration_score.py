"""The score that decides what "best" is: balanced accuracy at full depth on the calibration split."""

# Shapes: N examples of the split, n of this process's share

import numpy as np
import torch

from elfnet.data.examples import Ints
from elfnet.data.loading.feed import EvaluationFeed
from elfnet.evaluate.accuracy import balanced_accuracy
from elfnet.evaluate.run_network import answers_at_full_depth
from elfnet.models.staged import StagedNetwork
from elfnet.train.processes import Processes


def predictions(
    network: StagedNetwork, batches: EvaluationFeed, examples: int, *, precision: str, processes: Processes
) -> Ints:
    """Class of every example of a split at full depth, shape (N,); -1 where it could not be read.

    Every process predicts its share, and gets the predictions of all.
    """
    first, end = processes.share.bounds(examples)
    # Shifted by one, so that those who do not know add nothing.
    known_N = torch.zeros(2, examples, dtype=torch.int64)
    if end > first:
        prediction_n = answers_at_full_depth(network, batches, precision=precision)
        rows_n = torch.from_numpy(batches.rows())
        known_N[0, rows_n] = torch.from_numpy(prediction_n) + 1
        known_N[1, rows_n] = 1
    prediction_N, times_N = processes.summed(known_N.to(processes.fabric.device)).cpu()
    assert int(times_N.max()) <= 1, "an example was predicted twice"
    return np.asarray(prediction_N - 1)


def calibration_score(prediction_N: Ints, labels_N: Ints) -> float:
    """Balanced accuracy of the examples that could be read."""
    read_N = prediction_N >= 0
    return balanced_accuracy(prediction_N[read_N], labels_N[read_N])
