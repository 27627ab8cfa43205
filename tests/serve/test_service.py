"""Settings of the service."""

from typing import Any

import pytest

from elfnet.errors import RequestError
from elfnet.serve.service import ServeSettings


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_batch": 0},
        {"wait_ms": -1.0},
        {"max_images": 9, "max_queue": 8},
        {"max_body_bytes": 11, "max_held_bytes": 10},
        {"read_seconds": 0.0},
    ],
)
def test_settings_that_contradict_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match=next(iter(wrong))):
        ServeSettings(**wrong)
