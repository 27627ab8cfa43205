"""ASGI middleware around every request: security headers, request metrics and the response to an internal error."""

import logging
import time
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from elfnet.serve.errors import error_response
from elfnet.serve.service import Service

logger = logging.getLogger("elfnet.serve")

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS = {
    b"content-security-policy": CONTENT_SECURITY_POLICY.encode(),
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-resource-policy": b"same-origin",
    b"cross-origin-opener-policy": b"same-origin",
    b"permissions-policy": b"camera=(), microphone=(), geolocation=()",
}
UNKNOWN_ROUTE = "other"


class ResponseMiddleware:
    """Adds the security headers to every response, counts it, and answers 500 if the application raises.

    It must be the outermost middleware.
    """

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app, self._service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status = time.perf_counter(), 0

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                present = {name.lower() for name, _ in message["headers"]}
                added = SECURITY_HEADERS
                if b"cache-control" not in present:
                    added = {**SECURITY_HEADERS, b"cache-control": b"no-store"}
                message["headers"] = [*message["headers"], *added.items()]
            await send(message)

        try:
            await self._app(scope, receive, send_with_headers)
        except Exception:
            logger.exception("internal error in %s %r", scope["method"], scope["path"])
            if status == 0:
                response = error_response(500, "internal error; see the log of the service")
                await response(scope, receive, send_with_headers)
        finally:
            self._service.metrics.on_request(_route_label(scope), status, time.perf_counter() - start)


def _route_label(scope: Scope) -> str:
    """Return the path pattern of the route: a path from a client must not become a label of a metric."""
    route: Any = scope.get("route")
    return str(getattr(route, "path", UNKNOWN_ROUTE))
