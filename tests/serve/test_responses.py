"""What the explanation says of a point is what the engine does at it, also where exits are combined."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from elfnet.calibrate.family import Family
from elfnet.deploy.engine import Engine
from elfnet.serve.responses import logits_of_every_exit, views


@pytest.mark.parametrize("combine", [False, True])
def test_views_agree_with_the_engine(
    backend: Any, family: Family, digit_pixels: NDArray[np.uint8], combine: bool
) -> None:
    points = [
        replace(point, policy=replace(point.policy, combine=combine, confidence_scale=scales))
        for point, scales in zip(family.points, [(1.0, 0.7, 1.2), (0.8, 1.0, 1.0)] * 4, strict=True)
    ]
    mixed = replace(family, points=tuple(points))
    engine = Engine(backend, mixed)
    images = (digit_pixels[:12, None] / 255).astype(np.float32)
    logits_ENC = logits_of_every_exit(backend, images)
    taken = set()
    for i in range(len(images)):
        for view in views(mixed, logits_ENC[:, i]):
            alone = engine(images[i : i + 1], operating_point=view.point.name)
            assert view.exit == alone.exit_N[0]
            assert view.cost == alone.cost_N[0]
            assert view.class_E[view.exit] == alone.prediction_N[0]
            assert view.confidence_E[view.exit] == alone.confidence_N[0]
            taken.add(view.exit)
    assert taken == {0, 1, 2}
