"""Every response has the security headers, and an internal error is a response of one line."""

import numpy as np
import pytest
from numpy.typing import NDArray
from starlette.testclient import TestClient

from elfnet.deploy.model import Model


@pytest.mark.parametrize("path", ["/", "/v1/model", "/page/app.js", "/nothing", "/metrics"])
def test_every_response_has_the_security_headers(client: TestClient, path: str) -> None:
    headers = client.get(path, headers={"Origin": "http://elsewhere.example"}).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert "access-control-allow-origin" not in headers
    assert "server" not in headers


def test_an_internal_error_is_one_line_and_the_service_continues(
    client: TestClient,
    model: Model,
    digit_files: list[bytes],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(images_NHWK: NDArray[np.uint8]) -> None:
        raise ZeroDivisionError(f"secret {len(images_NHWK)}")

    with monkeypatch.context() as patch:
        patch.setattr(type(model.preprocess), "normalise", lambda _self, pixels: broken(pixels))
        response = client.post("/v1/predict", files={"image": ("a", digit_files[0])})
    assert (response.status_code, response.json()) == (500, {"error": "internal error; see the log of the service"})
    assert "ZeroDivisionError" in caplog.text
    assert client.post("/v1/predict", files={"image": ("a", digit_files[0])}).status_code == 200
