"""Every failure as `{"error": "one line"}`."""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from elfnet.registry import unknown_name


class Refusal(Exception):  # noqa: N818 (an answer, not a failure)
    """Becomes `{"error": message}` with this status.

    Attributes:
        status: 4xx or 503.
        headers: to send along.
    """

    def __init__(self, status: int, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


def overloaded(message: str, retry_seconds: int) -> Refusal:
    """503: come back later."""
    return Refusal(503, message, Retry_After=str(retry_seconds))


def too_large(message: str) -> Refusal:
    """413 to a request that came whole."""
    return Refusal(413, message)


class BodyTooLarge(Refusal):
    """413 to a client who is still sending; the connection is closed, as the rest is not kept."""

    def __init__(self, message: str) -> None:
        super().__init__(413, message, Connection="close")


MOST_DROPPED_BYTES = 64_000_000
DROP_SECONDS = 10.0


class LingeringAnswer(JSONResponse):
    """Sent at once, ended when the rest of the request has come or a bound is reached."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        await drop_rest(receive, most_bytes=MOST_DROPPED_BYTES, seconds=DROP_SECONDS)
        await send({"type": "http.response.body", "body": b""})


async def drop_rest(receive: Receive, *, most_bytes: int, seconds: float) -> None:
    """Read what is left of a body and keep none of it; stops at either bound, and when the client hangs up."""
    dropped, more = 0, True
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while more and dropped < most_bytes:
                message = await receive()
                dropped += len(message.get("body", b""))
                more = message.get("more_body", False)


logger = logging.getLogger("elfnet.serve")


def add_error_answers(app: FastAPI) -> None:
    app.add_exception_handler(Refusal, _refusal)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)


def error_answer(
    status: int, message: str, headers: dict[str, str] | None = None, *, kind: type[JSONResponse] = JSONResponse
) -> JSONResponse:
    # One line, whatever a library put into the message.
    return kind({"error": " ".join(message.split())}, status, headers)


def refusal_answer(refusal: Refusal) -> JSONResponse:
    kind = LingeringAnswer if isinstance(refusal, BodyTooLarge) else JSONResponse
    return error_answer(refusal.status, str(refusal), refusal.headers, kind=kind)


async def _refusal(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, Refusal)
    return refusal_answer(error)


async def _invalid(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    # Bodies are read by hand; what is left is a part of a path, whose place comes first.
    return error_answer(422, sentence({**first, "loc": first["loc"][1:]}))


async def _http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    message = {404: "there is nothing here; see /openapi.json", 405: f"{request.method} is not answered here"}
    return error_answer(error.status_code, message.get(error.status_code, str(error.detail)), dict(error.headers or {}))


LONGEST_NAME = 120

_MUST_BE = {
    "string_type": "text",
    "list_type": "a list",
    "model_type": "a JSON object",
    "bool_type": "true or false",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "greater_than_equal": "{ge} or more",
}


def describe(error: ValidationError, model: type[BaseModel]) -> tuple[int, str]:
    """Status and one line for the first thing that is wrong with a body: 400 if it is no JSON, else 422."""
    errors = error.errors(include_url=False, include_input=False)
    # A misspelt field is unknown and leaves the right one missing; the former says what was misspelt.
    first = next((one for one in errors if one["type"] == "extra_forbidden" and len(one["loc"]) == 1), errors[0])
    kind, where = first["type"], first["loc"]
    if kind == "json_invalid":
        return 400, f"the body is not JSON: {first['msg'].removeprefix('Invalid JSON: ')}"
    if kind == "extra_forbidden" and len(where) == 1:
        return 422, str(unknown_name("field", str(where[0])[:LONGEST_NAME], list(model.model_fields)))
    if kind == "missing" and len(where) == 1:
        name = str(where[0])
        return 422, f"field {name!r} is missing; send {name}: {model.model_fields[name].description}"
    if where[:1] == ("images",) and len(where) > 1:
        # An image may be written in two ways, so that each mistake is reported for both.
        return 422, f'image {int(where[1]) + 1} must be base64 text or {{"name": text, "data": base64 text}}'
    return 422, sentence(first)


def sentence(error: Mapping[str, Any]) -> str:
    """One line for one of pydantic's errors."""
    name = ".".join(str(part) for part in error["loc"])[:LONGEST_NAME] or "the body"
    kind, context = error["type"], error.get("ctx", {})
    if kind in _MUST_BE:
        return f"{name} must be {_MUST_BE[kind].format(**context)}"
    if kind == "too_short":
        return f"{name} is empty; send {context['min_length']} or more"
    if kind == "value_error":
        return str(context["error"])
    return f"{name}: {error['msg']}"
