"""The application as a whole: routing and OpenAPI."""

import json
import re

from starlette.testclient import TestClient


def test_other_methods_of_the_predict_route_are_not_allowed(client: TestClient) -> None:
    response = client.get("/v1/predict")
    assert (response.status_code, response.json()) == (405, {"error": "method GET is not allowed here"})


def test_openapi_describes_the_service(client: TestClient) -> None:
    schema = client.get("/openapi.json").json()
    assert {"/v1/predict", "/v1/model", "/v1/operating-point", "/healthz", "/readyz", "/metrics"} <= set(
        schema["paths"]
    )
    body = schema["paths"]["/v1/predict"]["post"]["requestBody"]["content"]
    assert set(body) == {"multipart/form-data", "application/json"}
    # Every reference leads somewhere.
    for name in re.findall(r'"\$ref": "#/components/schemas/([^"]+)"', json.dumps(schema)):
        assert name in schema["components"]["schemas"]
    assert client.get("/docs").status_code == 404
