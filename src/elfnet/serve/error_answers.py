"""Every failure as `{"error": "one line"}`."""

import logging

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from elfnet.serve.lingering_answer import LingeringAnswer
from elfnet.serve.refusal import BodyTooLarge, Refusal
from elfnet.serve.wording import sentence

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
