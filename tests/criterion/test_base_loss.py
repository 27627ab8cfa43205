"""Losses by name, each taking its own settings."""

from typing import Any

import pytest
import torch

from elfnet.criterion.base_loss import BaseLoss, build_loss
from elfnet.errors import RequestError

COUNTS = [100, 10]
COSINES_BC, TARGET_B = torch.tensor([[0.6, 0.1], [0.2, -0.3]]), torch.tensor([0, 1])


@pytest.mark.parametrize(
    ("name", "setting", "value"),
    [
        ("focal", "focal_gamma", 2.0),
        ("ldam", "ldam_max_margin", 0.1),
        ("ldam", "ldam_power", 1.0),
        ("ldam", "ldam_scale", 10.0),
    ],
)
def test_every_setting_changes_its_loss_and_no_other(name: str, setting: str, value: float) -> None:
    settings: dict[str, Any] = {setting: value}
    for loss in ("ce", "focal", "ldam"):
        default_B, changed_B = (
            build_loss(loss, COUNTS)(COSINES_BC, TARGET_B),
            build_loss(loss, COUNTS, **settings)(COSINES_BC, TARGET_B),
        )
        assert torch.equal(default_B, changed_B) is (loss != name)


def test_ldam_reads_the_counts() -> None:
    losses = [build_loss("ldam", counts)(COSINES_BC, TARGET_B) for counts in (COUNTS, COUNTS[::-1])]
    assert not torch.equal(losses[0], losses[1])


def test_unknown_loss_is_refused() -> None:
    with pytest.raises(RequestError, match=r"unknown criterion.loss 'focl'; did you mean 'focal'\?"):
        build_loss("focl", COUNTS)


def test_a_loss_must_say_what_it_computes() -> None:
    with pytest.raises(NotImplementedError):
        BaseLoss()(COSINES_BC, TARGET_B)
