"""The application as a whole: routing and OpenAPI."""

import json
import re

from starlette.testclient import TestClient


def test_other_methods_of_the_predict_route_are_not_allowed(client: TestClient) -> None:
    response = client.get("/v1/predict")
    assert (response.status_code, response.json()) == (405, {"error": "method GET is not allowed here"})
    assert response.headers["allow"] == "POST"
    # Two routes have this path.
    assert set(client.options("/v1/operating-point").headers["allow"].split(", ")) == {"GET", "PUT"}


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


def test_openapi_documents_every_status(client: TestClient) -> None:
    everywhere = {"200", "400", "408", "421", "431", "500", "503"}
    more = {
        ("/v1/predict", "post"): {"403", "413", "415", "422"},
        ("/metrics", "get"): {"404"},
        ("/v1/operating-point", "put"): {"401", "403", "413", "422"},
        ("/v1/samples/{number}", "get"): {"404", "422"},
    }
    paths = client.get("/openapi.json").json()["paths"]
    operations = [(path, method) for path, methods in paths.items() for method in methods]
    assert set(more) < set(operations)
    for path, method in operations:
        responses = paths[path][method]["responses"]
        assert set(responses) == everywhere | more.get((path, method), set()), path
        for status, response in responses.items():
            if status != "200":
                assert response["content"]["application/json"]["schema"] == {
                    "$ref": "#/components/schemas/ErrorResponse"
                }, (path, status)
