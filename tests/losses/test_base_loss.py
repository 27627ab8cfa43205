"""Losses by name, each taking its own settings."""

from typing import Any

import pytest
import torch

from elfnet.errors import RequestError
from elfnet.losses.base import BaseLoss, build_loss

COUNTS = [100, 10]
LOSSES = ("ce", "focal", "balanced-softmax", "logit-adjusted")
COSINES_BC, TARGET_B = torch.tensor([[0.6, 0.1], [0.2, -0.3]]), torch.tensor([0, 1])


@pytest.mark.parametrize(
    ("name", "setting", "value"),
    [
        ("focal", "focal_gamma", 2.0),
        ("ldam", "ldam_max_margin", 0.1),
        ("ldam", "ldam_power", 1.0),
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


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_multiplies_logits_by_its_scale(name: str) -> None:
    """The scale makes a softmax over cosines far from uniform; gradients are compared, too."""
    cosines_BC = COSINES_BC.clone().requires_grad_()
    scaled_B = build_loss(name, COUNTS, scale=30.0)(cosines_BC, TARGET_B)
    assert build_loss(name, COUNTS, scale=30.0).scale == 30.0
    multiplied_B = build_loss(name, COUNTS, scale=1.0)(30.0 * COSINES_BC, TARGET_B)
    assert torch.equal(scaled_B, multiplied_B)
    (gradient_BC,) = torch.autograd.grad(scaled_B.sum(), cosines_BC)
    logits_BC = (30.0 * COSINES_BC).requires_grad_()
    (of_logits_BC,) = torch.autograd.grad(build_loss(name, COUNTS)(logits_BC, TARGET_B).sum(), logits_BC)
    assert torch.allclose(gradient_BC, 30.0 * of_logits_BC, rtol=1e-5)


@pytest.mark.parametrize("name", [*LOSSES, "ldam"])
@pytest.mark.parametrize("scale", [0.0, -1.0])
def test_a_scale_that_is_not_positive_is_refused(name: str, scale: float) -> None:
    with pytest.raises(RequestError, match=rf"criterion\.cosine_scale={scale} must be positive; the usual value is 30"):
        build_loss(name, COUNTS, scale=scale)


def test_ldam_has_the_usual_scale_unless_told() -> None:
    assert build_loss("ldam", COUNTS).scale == 30.0


def test_ldam_reads_the_counts() -> None:
    losses = [build_loss("ldam", counts)(COSINES_BC, TARGET_B) for counts in (COUNTS, COUNTS[::-1])]
    assert not torch.equal(losses[0], losses[1])


def test_unknown_loss_is_refused() -> None:
    with pytest.raises(RequestError, match=r"unknown criterion.loss 'focl'; did you mean 'focal'\?"):
        build_loss("focl", COUNTS)


def test_a_loss_must_say_what_it_computes() -> None:
    with pytest.raises(NotImplementedError):
        BaseLoss()(COSINES_BC, TARGET_B)
