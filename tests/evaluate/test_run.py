"""Passes over a split."""

import numpy as np
import pytest
import torch
from torch import nn

from elfnet.evaluate.run import answers_at_full_depth, logits_of
from elfnet.models.staged import StagedNetwork


def network() -> StagedNetwork:
    torch.manual_seed(0)
    stages: list[nn.Module] = [
        nn.Sequential(nn.Flatten(), nn.BatchNorm1d(12)),
        nn.Sequential(nn.Linear(12, 8), nn.Dropout(0.5)),
    ]
    return StagedNetwork(stages, [nn.Linear(12, 5), nn.Linear(8, 5)], classes=5)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_answers_at_full_depth_are_those_of_the_last_exit(precision: str) -> None:
    batches = torch.randn(30, 3, 2, 2).split(7)  # type: ignore[no-untyped-call]
    staged = network()
    logits_NEC = logits_of(staged, batches, precision=precision)
    answers_N = answers_at_full_depth(staged, batches, precision=precision)
    np.testing.assert_array_equal(answers_N, logits_NEC[:, -1].argmax(axis=1))
    assert not np.array_equal(answers_N, logits_NEC[:, 0].argmax(axis=1))
    assert staged.training, "its mode is left as it was"


def test_for_answers_at_full_depth_no_other_head_is_run() -> None:
    def must_not_run(*_: object) -> None:
        raise AssertionError

    staged = network()
    staged.heads[0].register_forward_hook(must_not_run)
    assert answers_at_full_depth(staged, [torch.randn(4, 3, 2, 2)]).shape == (4,)
