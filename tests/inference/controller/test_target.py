"""Settings that make no sense are refused."""

import pytest

from elfnet.errors import RequestError
from elfnet.inference.controller.target import ControlSettings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"window": 1}, "window=1 is too short"),
        ({"dead_band": -0.1}, "dead_band=-0.1"),
        ({"dead_band": float("nan")}, "dead_band=nan"),
        ({"far_off": 0.01}, "far_off=0.01 lies within dead_band=0.03"),
        ({"false_alarm": 0.0}, "false_alarm=0.0"),
        ({"false_alarm": 1.0}, "false_alarm=1.0"),
    ],
)
def test_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        ControlSettings(**settings)  # type: ignore[arg-type]
