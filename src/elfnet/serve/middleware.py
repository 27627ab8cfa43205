"""ASGI middleware around every request: security headers, metrics, internal errors, checks of host and origin."""

import logging
import time
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from elfnet.serve.errors import MAX_NAME, ApiError, api_error_response, error_response
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
_ADDED_HEADERS = [*SECURITY_HEADERS.items(), (b"cache-control", b"no-store")]
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
                headers = message["headers"]
                cached = any(name == b"cache-control" for name, _ in headers)
                message["headers"] = [*headers, *(_ADDED_HEADERS[:-1] if cached else _ADDED_HEADERS)]
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


class HostMiddleware:
    """Refuses requests whose `Host` header names another host, with status 421.

    A web page of another site can make its own name resolve to the address of this service (DNS rebinding), and the
    browser would let it read the responses. Its requests have the name of that site in `Host`.

    Allowed are `localhost`, loopback addresses, the address that the client connected to, and the settings'
    `allowed_hosts`; "*" there allows all.
    """

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._allowed = {"localhost"}
        for host in service.settings.allowed_hosts:
            self._allowed.add(str(_parse_address(host) or host.lower().removesuffix(".")))
        # Clients send the same few values over and over, and parsing addresses takes a tenth of a small request.
        self._is_allowed = lru_cache(maxsize=256)(self._is_allowed_uncached)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            try:
                self._check(scope)
            except ApiError as error:
                await api_error_response(error)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        values = [value for name, value in scope["headers"] if name == b"host"]
        if len(values) > 1:
            raise ApiError(400, "the request has several Host headers; send one", Connection="close")
        if not values:
            if scope["http_version"] == "1.0":
                return
            raise ApiError(400, "the request has no Host header; HTTP/1.1 requires one", Connection="close")
        local_address = (scope.get("server") or ("",))[0]
        if not self._is_allowed(values[0], local_address):
            host = _without_port(values[0])[:MAX_NAME]
            shown = "".join(character for character in host if character.isprintable())
            raise ApiError(421, f"host {shown!r} is not allowed; start the service with --allow-host to allow it")

    def _is_allowed_uncached(self, value: bytes, local_address: str) -> bool:
        host = _without_port(value)
        if host in self._allowed or "*" in self._allowed:
            return True
        address = _parse_address(host)
        if address is None:
            return False
        return address.is_loopback or address == _parse_address(local_address) or str(address) in self._allowed


class OriginMiddleware:
    """Refuses requests that a web page of another site sends, with status 403.

    A browser lets any page send a form to this service. The page cannot read the response, but it could keep the
    service busy. Browsers describe the page in `Sec-Fetch-Site` and `Origin`; programs send neither.

    Reading (GET, HEAD) is not refused: a page of another site cannot see the response. Allowed are pages of the service
    itself and the settings' `allowed_origins`.
    """

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._allowed = {origin.lower().encode() for origin in service.settings.allowed_origins}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] not in ("GET", "HEAD"):
            headers = dict(scope["headers"])
            if not self._is_allowed(headers):
                origin = headers.get(b"origin", b"another site").decode("latin-1")[:MAX_NAME]
                shown = "".join(character for character in origin if character.isprintable())
                message = f"pages of {shown} may not use this service; start it with --allow-origin to allow it"
                await error_response(403, message, {"Connection": "close"})(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _is_allowed(self, headers: dict[bytes, bytes]) -> bool:
        origin, site = headers.get(b"origin"), headers.get(b"sec-fetch-site")
        if origin is not None and origin.lower() in self._allowed:
            return True
        if site is not None:
            # "none": the user, not a page, made the request. "same-site" is another host of the same domain.
            return site in (b"same-origin", b"none")
        # Browsers leave Sec-Fetch-Site out for addresses without encryption.
        return origin is None or origin.lower().partition(b"://")[2] == headers.get(b"host", b"").lower()


def _without_port(value: bytes) -> str:
    """Return the name or address in a `Host` header in lower case, without port, brackets and final dot."""
    host = value.decode("latin-1")
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower().removesuffix(".")


def _parse_address(text: str) -> IPv4Address | IPv6Address | None:
    """Parse an IP address; None if it is a name. IPv4 addresses mapped to IPv6 become IPv4 addresses."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address
