"""Places are given back, whatever happens."""

from contextlib import suppress

import pytest

from elfnet.serve.admission import Admission
from elfnet.serve.errors import Refusal


def test_requests_and_bytes_are_bounded_and_given_back() -> None:
    admission = Admission(2, 100, lambda: 7)
    with admission.admit() as first, admission.admit() as second:
        first.hold(60)
        second.hold(40)
        with pytest.raises(Refusal, match="too many bytes") as refused:
            second.hold(1)
        assert (refused.value.status, refused.value.headers) == (503, {"Retry-After": "7"})
        with pytest.raises(Refusal, match="2 requests are being served"), admission.admit():
            pass
        assert (admission.requests, admission.held_bytes) == (2, 100)
    assert (admission.requests, admission.held_bytes) == (0, 0)
    with suppress(ZeroDivisionError), admission.admit() as place:
        place.hold(100)
        raise ZeroDivisionError
    assert (admission.requests, admission.held_bytes) == (0, 0)
