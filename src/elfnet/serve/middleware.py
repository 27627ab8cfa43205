"""Around every request: its figures, headers that browsers obey, and an answer even to a defect of ours."""

import logging
import time
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from elfnet.serve.errors import error_answer
from elfnet.serve.service import Service

logger = logging.getLogger("elfnet.serve")

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    b"content-security-policy": POLICY.encode(),
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-resource-policy": b"same-origin",
    b"cross-origin-opener-policy": b"same-origin",
    b"permissions-policy": b"camera=(), microphone=(), geolocation=()",
}
OTHER = "other"


class Envelope:
    """ASGI middleware; outermost, so that nothing escapes it."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app, self._service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                there = {name.lower() for name, _ in message["headers"]}
                more = HEADERS if b"cache-control" in there else {**HEADERS, b"cache-control": b"no-store"}
                message["headers"] = [*message["headers"], *more.items()]
            await send(message)

        try:
            await self._app(scope, receive, send_with_headers)
        except Exception:
            logger.exception("defect while answering %s %r", scope["method"], scope["path"])
            if status == 0:
                answer = error_answer(500, "something went wrong here; the log of the service tells more")
                await answer(scope, receive, send_with_headers)
        finally:
            self._service.metrics.on_request(_route(scope), status, time.perf_counter() - began)


def _route(scope: Scope) -> str:
    """The pattern of the route: what a client writes must not become a name of a figure."""
    route: Any = scope.get("route")
    return str(getattr(route, "path", OTHER))
