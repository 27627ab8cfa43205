"""Error responses: every failure is sent as `{"error": "one line"}`."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Receive, Scope, Send

from elfnet.registry import unknown_name

NOT_FOUND = "not found; /openapi.json lists the routes"
MAX_NAME = 120
"""Characters of a name from a request that are repeated in a message."""

MAX_DRAINED_BYTES = 64_000_000
DRAIN_SECONDS = 10.0


class ApiError(Exception):
    """A request that is refused; sent as `{"error": message}`.

    Attributes:
        status: the HTTP status code, 4xx or 503.
        headers: response headers; as keyword arguments they are written with underscores (`Retry_After="5"`).
    """

    def __init__(self, status: int, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


class BodyTooLargeError(ApiError):
    """413 while the client is still sending: the rest is drained and the connection is closed."""

    def __init__(self, message: str) -> None:
        super().__init__(413, message, Connection="close")


def too_large(message: str) -> ApiError:
    """Return the 413 error for a request that was received completely."""
    return ApiError(413, message)


def overloaded(message: str, retry_after: int) -> ApiError:
    """Return the 503 error with a `Retry-After` header in seconds."""
    return ApiError(503, message, Retry_After=str(retry_after))


class DrainingResponse(JSONResponse):
    """A response to a client that is still sending its request.

    If the connection were closed on unread bytes, the client would see a reset instead of the response. So the
    response is sent at once and is completed when the rest of the request has arrived or a limit is reached.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        await drain_body(receive, max_bytes=MAX_DRAINED_BYTES, timeout=DRAIN_SECONDS)
        await send({"type": "http.response.body", "body": b""})


async def drain_body(receive: Receive, *, max_bytes: int, timeout: float) -> None:
    """Receive the rest of a body and discard it, until its end, a disconnect, `max_bytes` or `timeout` seconds."""
    drained, more = 0, True
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout):
            while more and drained < max_bytes:
                message = await receive()
                drained += len(message.get("body", b""))
                more = message.get("more_body", False)


def error_response(
    status: int,
    message: str,
    headers: dict[str, str] | None = None,
    *,
    response_class: type[JSONResponse] = JSONResponse,
) -> JSONResponse:
    """Return the response `{"error": message}`; line breaks in the message become spaces."""
    return response_class({"error": " ".join(message.split())}, status, headers)


def api_error_response(error: ApiError) -> JSONResponse:
    """Return the response for an `ApiError`."""
    response_class = DrainingResponse if isinstance(error, BodyTooLargeError) else JSONResponse
    return error_response(error.status, str(error), error.headers, response_class=response_class)


def add_exception_handlers(app: FastAPI, routes: Sequence[BaseRoute]) -> None:
    """Make every exception that FastAPI handles an error response of this module.

    Args:
        routes: of the application.
    """
    app.add_exception_handler(ApiError, _on_api_error)
    app.add_exception_handler(RequestValidationError, _on_validation_error)
    plain = [route for route in routes if isinstance(route, Route)]
    app.add_exception_handler(HTTPException, partial(_on_http_exception, plain))


async def _on_api_error(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ApiError)
    return api_error_response(error)


async def _on_validation_error(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    # FastAPI validates no bodies here, only path parameters; the first part of the location is "path".
    return error_response(422, validation_message({**first, "loc": first["loc"][1:]}))


async def _on_http_exception(routes: Sequence[Route], request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    messages = {404: NOT_FOUND, 405: f"method {request.method} is not allowed here"}
    message = messages.get(error.status_code, str(error.detail))
    headers = dict(error.headers or {})
    if error.status_code == 405:
        # Of all routes with this path; Starlette names the methods of the first only.
        found = [route for route in routes if route.matches(request.scope)[0] != Match.NONE]
        headers["Allow"] = ", ".join(sorted({method for route in found for method in route.methods or ()}))
    return error_response(error.status_code, message, headers)


_MUST_BE = {
    "string_type": "a string",
    "list_type": "a list",
    "model_type": "a JSON object",
    "bool_type": "true or false",
    "int_type": "an integer",
    "int_parsing": "an integer",
    "float_type": "a number",
    "finite_number": "a finite number",
    "greater_than_equal": "{ge} or more",
}


def describe_validation_error(error: ValidationError, model: type[BaseModel]) -> tuple[int, str]:
    """Describe the first problem of a JSON body in terms of what to send.

    Returns:
        The status (400 if the body is not JSON, otherwise 422) and a message of one line.
    """
    errors = error.errors(include_url=False, include_input=False)
    # A misspelt field is reported as unknown, and the right one as missing; the former is more helpful.
    first = next((one for one in errors if one["type"] == "extra_forbidden" and len(one["loc"]) == 1), errors[0])
    kind, location = first["type"], first["loc"]
    if kind == "json_invalid":
        return 400, f"the body is not JSON: {first['msg'].removeprefix('Invalid JSON: ')}"
    if kind == "extra_forbidden" and len(location) == 1:
        return 422, str(unknown_name("field", str(location[0])[:MAX_NAME], list(model.model_fields)))
    if kind == "missing" and len(location) == 1:
        name = str(location[0])
        return 422, f"field {name!r} is missing; send {name}: {model.model_fields[name].description}"
    if location[:1] == ("images",) and len(location) > 1:
        # An image is a string or an object, and pydantic reports each problem once for either.
        return 422, f'image {int(location[1]) + 1} must be a base64 string or {{"name": string, "data": base64 string}}'
    if location[:1] == ("budget",):
        return 422, "budget must be a finite number, or a time per image as text, such as 5ms"
    return 422, validation_message(first)


def validation_message(error: Mapping[str, Any]) -> str:
    """Return one line for one of pydantic's errors."""
    name = ".".join(str(part) for part in error["loc"])[:MAX_NAME] or "the body"
    kind, context = error["type"], error.get("ctx", {})
    if kind in _MUST_BE:
        return f"{name} must be {_MUST_BE[kind].format(**context)}"
    if kind == "too_short":
        return f"{name} is empty; send {context['min_length']} or more"
    if kind == "value_error":
        return str(context["error"])
    return f"{name}: {error['msg']}"
