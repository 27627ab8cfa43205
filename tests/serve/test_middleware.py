"""Every response has the security headers, and a defect is one line."""

import numpy as np
import pytest
from numpy.typing import NDArray
from starlette.testclient import TestClient

from elfnet.deploy.model import Model


@pytest.mark.parametrize("path", ["/", "/v1/model", "/page/app.js", "/nothing", "/metrics"])
def test_every_answer_has_the_security_headers(client: TestClient, path: str) -> None:
    headers = client.get(path, headers={"Origin": "http://elsewhere.example"}).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert "access-control-allow-origin" not in headers
    assert "server" not in headers


def test_a_defect_is_one_line_and_the_service_goes_on(
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
        answer = client.post("/v1/predict", files={"image": ("a", digit_files[0])})
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert "ZeroDivisionError" in caplog.text
    assert client.post("/v1/predict", files={"image": ("a", digit_files[0])}).status_code == 200
