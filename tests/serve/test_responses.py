"""Explanations agree with the engine at every operating point, also where exits are combined."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from elfnet.calibrate.point_family import Family
from elfnet.inference.engine import Engine, all_exit_logits
from elfnet.inference.model import Model
from elfnet.serve.responses import explain


@pytest.mark.parametrize("combine", [False, True])
def test_explanations_agree_with_the_engine(
    backend: Any, family: Family, model: Model, digit_pixels: NDArray[np.uint8], combine: bool
) -> None:
    points = [
        replace(point, policy=replace(point.policy, combine=combine, confidence_scale=scales))
        for point, scales in zip(family.points, [(1.0, 0.7, 1.2), (0.8, 1.0, 1.0)] * 4, strict=True)
    ]
    model.engine = engine = Engine(backend, replace(family, points=tuple(points)))
    images = (digit_pixels[:12, None] / 255).astype(np.float32)
    logits_NEC = all_exit_logits(backend, images).astype(np.float64)
    taken = set()
    for i in range(len(images)):
        for point in explain(model, logits_NEC[i]).points:
            alone = engine(images[i : i + 1], operating_point=point.operating_point)
            assert point.exit == alone.exit_N[0] + 1
            assert point.cost == alone.cost_N[0]
            assert point.label == model.class_names[alone.prediction_N[0]]
            assert point.confidence == alone.confidence_N[0]
            taken.add(point.exit)
    assert taken == {1, 2, 3}
