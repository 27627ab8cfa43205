"""Families with costs written down."""

from collections.abc import Callable, Sequence

import pytest

from elfnet.calibrate.operating_point import Expected, OperatingPoint
from elfnet.calibrate.point_family import Family
from elfnet.exits.policy import Policy

FamilyFactory = Callable[..., Family]


@pytest.fixture(scope="session")
def make_family() -> FamilyFactory:
    """Points `p0`, `p1` ... with the mean costs given; balanced accuracy rises with the cost unless given."""

    def make(
        mean_cost: Sequence[float] = (0.2, 0.4, 0.6, 0.8, 1.0),
        *,
        accuracy: Sequence[float] | None = None,
        worst_cost: float = 1.2,
    ) -> Family:
        accuracy = accuracy or [0.5 + cost / 10 for cost in mean_cost]
        points = [
            OperatingPoint(
                name=f"p{i}",
                policy=Policy(f"p{i}", (0.5,), (1.0, 1.0)),
                expected=Expected(
                    accuracy=right,
                    accuracy_by_group={"many": right, "medium": None, "few": None},
                    balanced_accuracy=right,
                    mean_cost=cost,
                    worst_cost=worst_cost,
                    exit_share=(0.5, 0.5),
                ),
                rule="fixed",
            )
            for i, (cost, right) in enumerate(zip(mean_cost, accuracy, strict=True))
        ]
        return Family(
            points=tuple(points),
            checkpoint_sha256="a" * 64,
            split="calibration",
            n=100,
            confidence_scale=(1.0, 1.0),
            cost=(0.1, worst_cost),
            head_cost=(0.05, 0.0),
        )

    return make
