"""A malformed form is a refusal, and no line in the log."""

import pytest

from elfnet.serve.errors import Refusal
from elfnet.serve.requests import parse_multipart


@pytest.mark.parametrize("body", [b"x", b"--c\r\n", b"--b\r\nno header\r\n\r\n"])
def test_the_parser_logs_nothing(body: bytes, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(Refusal, match="the multipart body is malformed") as refused:
        parse_multipart("multipart/form-data; boundary=b", body)
    assert refused.value.status == 400
    assert caplog.records == []
