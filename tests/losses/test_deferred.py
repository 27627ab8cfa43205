"""Deferred re-weighting: the boundary is 0-based and inclusive."""

import pytest

from elfnet.losses.weighting import weights_in_force


@pytest.mark.parametrize(
    ("epoch", "start", "in_force"),
    [(0, 160, "none"), (159, 160, "none"), (160, 160, "effective"), (199, 160, "effective"), (0, 0, "effective")],
)
def test_weights_apply_from_the_start_epoch_on(epoch: int, start: int, in_force: str) -> None:
    assert weights_in_force(epoch, reweight="effective", start=start) == in_force


def test_no_weights_stay_no_weights() -> None:
    assert {weights_in_force(epoch, reweight="none", start=1) for epoch in range(3)} == {"none"}
