"""Choosing among taus."""

import numpy as np
import torch
from torch import Tensor

from elfnet.methods.refit.post_hoc import TauChoice, choose_tau, tau_remarks, taus_record
from elfnet.run.info import TauInfo, TauScore

LABELS = np.array([0, 0, 0, 1])
ALL_FIRST = torch.tensor([[1.0, 0.0]] * 4)
RIGHT = torch.tensor([[1.0, 0.0]] * 3 + [[0.0, 1.0]])


def test_of_equally_good_candidates_the_smallest_is_chosen_in_whatever_order_they_come() -> None:
    def corrected(tau: float) -> Tensor:
        return RIGHT if tau >= 0.5 else ALL_FIRST

    choice = choose_tau(ALL_FIRST, LABELS, [1.0, 0.0, 2.0, 0.5], corrected=corrected)
    assert choice.tau == 0.5
    assert choice.scores == ((0.0, 0.5), (0.5, 1.0), (1.0, 1.0), (2.0, 1.0))
    assert choice.before == 0.5


def test_the_record_has_full_depth_first_and_every_exit() -> None:
    first = choose_tau(ALL_FIRST, LABELS, [0.0], corrected=lambda _: ALL_FIRST)
    last = choose_tau(ALL_FIRST, LABELS, [1.0], corrected=lambda _: RIGHT)
    record = taus_record([first, last])
    assert record.tau == 1.0
    assert record.scores == (TauScore(tau=1.0, balanced_accuracy=1.0),)
    assert [one.tau for one in record.exits if isinstance(one, TauInfo)] == [0.0, 1.0]


def test_a_choice_at_the_end_of_the_candidates_is_said() -> None:
    def remarks(tau: float, taus: list[float]) -> list[str]:
        return tau_remarks([TauChoice(tau, ((tau, 0.5),), 0.4)], taus)

    assert remarks(1.0, [0.0, 1.0, 2.0]) == ["tau by exit 1 (calibration accuracy 40.0 -> 50.0 %)"]
    assert remarks(2.0, [0.0, 1.0, 2.0])[1:] == [
        "2 is the largest candidate and was chosen: refit.taus may end too early"
    ]
    assert len(remarks(2.0, [2.0])) == 1, "no warning for a single candidate"
