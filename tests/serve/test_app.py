"""Health, figures, headers, samples and the page's files."""

import json
import re

from starlette.testclient import TestClient


def test_other_methods_of_the_busy_route_are_answered_too(client: TestClient) -> None:
    answer = client.get("/v1/predict")
    assert (answer.status_code, answer.json()) == (405, {"error": "GET is not answered here"})


def test_openapi_describes_the_service(client: TestClient) -> None:
    told = client.get("/openapi.json").json()
    assert {"/v1/predict", "/v1/model", "/v1/operating-point", "/healthz", "/readyz", "/metrics"} <= set(told["paths"])
    body = told["paths"]["/v1/predict"]["post"]["requestBody"]["content"]
    assert set(body) == {"multipart/form-data", "application/json"}
    # Every reference leads somewhere.
    for name in re.findall(r'"\$ref": "#/components/schemas/([^"]+)"', json.dumps(told)):
        assert name in told["components"]["schemas"]
    assert client.get("/docs").status_code == 404
