"""Every failure as `{"error": "one line"}`."""

import logging

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from elfnet.serve.asked import LONGEST_NAME
from elfnet.serve.refusal import Refusal

logger = logging.getLogger("elfnet.serve")


def add_error_answers(app: FastAPI) -> None:
    app.add_exception_handler(Refusal, _refusal)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)


def error_answer(status: int, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    # One line, whatever a library put into the message.
    return JSONResponse({"error": " ".join(message.split())}, status, headers)


async def _refusal(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, Refusal)
    return error_answer(error.status, str(error), error.headers)


async def _invalid(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return error_answer(400, f"the body is not JSON: {first.get('ctx', {}).get('error', 'it cannot be parsed')}")
    where = ".".join(str(part) for part in first["loc"] if part != "body")[:LONGEST_NAME]
    return error_answer(422, f"{where or 'the body'}: {first['msg'].removeprefix('Value error, ')}")


async def _http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    message = {404: "there is nothing here; see /openapi.json", 405: f"{request.method} is not answered here"}
    return error_answer(error.status_code, message.get(error.status_code, str(error.detail)), dict(error.headers or {}))
